//! Starts, watches, stops and compares runs, on pages and over HTTP.
//!
//! A run is made by a process of its own: the program that the server belongs to, started with an [`Assignment`] on its
//! standard input. It tells what happens ([`Event`]), and ends tidily when its input ends. So a run has the
//! result that the command line would give it, nothing that serves costs anything in the process that measures, and what
//! happens to one does not happen to the other.
//!
//! - `runs`: the runs, in their order, and what is kept of them over a restart
//! - `process`: the process of a run
//! - `live`: what happens in a run, for any number of readers
//! - `results`: the files of results
//! - `trigger`: the published trigger of load, as plans
//! - `app`: what can be asked of the server
//! - `http`: who may ask for what, and what is answered
//! - `pages`: the pages for people
//!
//! Invariants: it knows no store and runs nothing itself. No request names a file. Whoever asks learns no password.

mod app;
mod event;
mod http;
mod live;
mod pages;
mod process;
mod program;
mod results;
mod runs;
mod server;
mod trigger;

pub use event::{Ending, Event, FaultEvent, PROTOCOL, SecondEvent, SoFarEvent, VerdictEvent};
pub use program::{
    Assignment, CheckedPlan, Program, Refusal, StoreAbilities, Supported, WorkloadAbout, WorkloadParameter,
};
pub use server::{Config, Error, Server, Token, start};
