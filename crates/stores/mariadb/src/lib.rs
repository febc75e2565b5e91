//! The mariadb adapter
