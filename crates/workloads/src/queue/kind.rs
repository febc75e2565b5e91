//! Entries of the matrix that several stores with queues share.

use acidtest_model::{CellRequest, IdleOption, Lock, Support};

use super::NAME;

const NO_DECISIONS: Support = Support::No("a queue has nothing to read, decide on and write");

/// The lock modes of a store that has only queues of messages.
pub const LOCKS_OF_QUEUES: &[(Lock, Support)] = &[
    (Lock::None, Support::Yes("nothing is protected: a message is published, or consumed")),
    (Lock::Soft, NO_DECISIONS),
    (Lock::Hard, NO_DECISIONS),
    (Lock::Native, NO_DECISIONS),
];

/// For a store that has only queues of messages.
pub const NO_CONFLICTS: IdleOption = IdleOption {
    name: "max_retries",
    why: "a message is stored, delivered or acknowledged: no operation conflicts with another",
};

/// The parameters without effect on a store whose queues are tables.
#[must_use]
pub fn idle_on_tables(request: &CellRequest<'_>) -> &'static [IdleOption] {
    const AHEAD: &[IdleOption] = &[IdleOption {
        name: "prefetch",
        why: "a message is taken out of a table when it is asked for, and none ahead",
    }];
    if request.workload == NAME { AHEAD } else { &[] }
}
