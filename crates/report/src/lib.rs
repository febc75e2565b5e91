//! Results as JSON, tables and prices
