//! What the programs of `bench/` have in common. Each is a store's clients and the engine, and nothing else.

mod point;
mod profile;

pub use point::{Point, measure};
pub use profile::{profile_queue, profile_records};
