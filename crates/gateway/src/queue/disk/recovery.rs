//! What an earlier gateway has left in the folder of its queue.

use std::{collections::VecDeque, fs, io, path::Path};

use super::{
    DAMAGED, Placed,
    segment::{self, Segment, Step, Walk},
};

pub(super) struct Recovered {
    pub(super) segments: VecDeque<Placed>,
    pub(super) next_segment: u64,
    /// The number behind the last entry.
    pub(super) end: u64,
}

/// Reads every segment. Entries before `stored` are stored already. What cannot be read is told, and costs nothing that
/// can be.
pub(super) fn recover(folder: &Path, stored: u64) -> io::Result<Recovered> {
    let mut numbers = Vec::new();
    for file in fs::read_dir(folder)? {
        let name = file?.file_name();
        numbers.extend(name.to_str().and_then(segment::number));
    }
    numbers.sort_unstable();
    let mut found = Recovered { segments: VecDeque::new(), next_segment: 1, end: stored };
    for number in numbers {
        found.next_segment = number + 1;
        let path = segment::path(folder, number);
        let size = fs::metadata(&path)?.len();
        match Segment::open(&path)? {
            Some(segment) => {
                let placed = look_through(segment, number, size, &mut found.end);
                found.segments.push_back(placed);
            }
            // made, and not yet written when its gateway ended
            None if is_zero(&path)? => fs::remove_file(&path)?,
            None => {
                let aside = path.with_extension("damaged");
                fs::rename(&path, &aside)?;
                tracing::error!(
                    file = %aside.display(),
                    "a segment's head cannot be read: what it holds is not stored, and the file is put aside"
                );
            }
        }
    }
    Ok(found)
}

fn look_through(segment: Segment, number: u64, size: u64, end: &mut u64) -> Placed {
    let mut placed =
        Placed { number, size, written: segment::BEGIN, end: segment.first, sealed: true, damaged: false };
    let mut walk = Walk::new(segment);
    while let Some(step) = walk.step(size) {
        match step {
            Step::Record(first, record) => placed.end = first + u64::from(record.entries),
            Step::Damage { from, to } => {
                placed.damaged = true;
                tracing::error!(segment = number, from, to, "{DAMAGED}");
            }
        }
    }
    placed.written = walk.offset;
    let end_of_file = walk.torn_end(size);
    if end_of_file > walk.offset {
        // a killed gateway leaves this: what it was about to write, and had not acknowledged
        tracing::warn!(segment = number, from = walk.offset, "a segment ends in what is no whole record");
    }
    // Nothing more is written into it: the room that it has kept is free. Otherwise some kills would fill the queue.
    if end_of_file < size && walk.cut(end_of_file).is_ok() {
        placed.size = end_of_file;
    }
    *end = (*end).max(placed.end);
    placed
}

fn is_zero(path: &Path) -> io::Result<bool> {
    Ok(fs::read(path)?.iter().all(|byte| *byte == 0))
}
