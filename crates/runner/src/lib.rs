//! Takes a plan through its stores, clients and audits to a result.
//!
//! The stores of a run are trait objects ([`Opener`]): whoever calls the runner has the list of them. The caller
//! checks the plan ([`plan_check`]), makes its grid ([`Grid`]), and then runs it ([`run`]).
//!
//! Invariants: it knows no store, prints nothing and reads no arguments. Nothing that it does is timed by it. Whatever
//! fails on the way, the trials made until then are kept, and what was started is stopped.

mod answer;
mod cluster;
mod command;
mod description;
mod driver;
mod evictions;
mod failure;
mod footprint;
mod grid;
mod harness;
mod host;
mod inject;
mod instance;
mod lives;
mod message;
mod observer;
mod outages;
pub mod plan_check;
mod processes;
mod resume;
mod run;
mod services;
mod state;
mod store;
mod target;
mod threads;
mod trial;
mod watch;
mod worker;

pub use answer::{PATIENCE, first_answer, within};
pub use description::{TrialDescription, WrittenAddress};
pub use driver::Spread;
pub use failure::Failure;
pub use footprint::Footprint;
pub use grid::{Cell, Grid};
pub use host::Host;
pub use inject::Injected;

pub use instance::{Claim, Instance, address_of, remove_leftover};
pub use observer::{FaultStage, Interrupt, Observer, SecondSeen, Silent, Watcher};
pub use outages::Outage;
pub use processes::{Processes, Worker};
pub use run::{Environment, Finished, Order, run};
pub use store::{OpenOptions, Opener};
pub use target::Target;
pub use trial::{TrialRun, doubt_if_idle};
pub use watch::Driven;
pub use worker::work;
