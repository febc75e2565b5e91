//! The sqlite adapter
