//! What stores say alike in their rows of the matrix.

use acidtest_model::{CellRequest, Lock};

/// Whether a cell is of parcels, without an index on `SCAN_HASH`.
#[must_use]
pub fn lacks_index(request: &CellRequest<'_>) -> bool {
    request.workload == super::KIND.name
        && request.parameters.get("index").is_some_and(|index| index == "none")
}

/// Why a table cannot be used as the cell asks, if there is a reason: its soft lock is an index.
#[must_use]
pub fn beyond_a_table(request: &CellRequest<'_>) -> Option<&'static str> {
    (lacks_index(request) && request.lock == Lock::Soft).then_some(
        "the soft lock is a unique index on SCAN_HASH and SCAN_COUNT: leave out --index none, or take another lock",
    )
}
