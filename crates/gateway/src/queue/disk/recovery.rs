//! What an earlier gateway has left in the folder of its queue.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io,
    path::Path,
    time::Duration,
};

use super::{
    DAMAGED, Placed, put_aside,
    segment::{self, Segment, Step, Walk},
};
use crate::entry;

pub(super) struct Recovered {
    pub(super) segments: VecDeque<Placed>,
    pub(super) next_segment: u64,
    /// The number behind the last entry.
    pub(super) end: u64,
    /// How long ago the first entry that waits was received.
    pub(super) oldest: Duration,
}

/// Reads every segment. Entries before `stored` are stored already. What cannot be read is told, and costs nothing that
/// can be.
pub(super) fn recover(folder: &Path, stored: u64) -> io::Result<Recovered> {
    let (mut numbers, mut next_segment) = (Vec::new(), 1);
    for file in fs::read_dir(folder)? {
        let name = file?.file_name();
        let Some((number, is_segment)) = name.to_str().and_then(segment::number) else { continue };
        // a number is not given again as long as a file of it is there
        next_segment = next_segment.max(number + 1);
        if is_segment {
            numbers.push(number);
        }
    }
    numbers.sort_unstable();
    let mut found =
        Recovered { segments: VecDeque::new(), next_segment, end: stored, oldest: Duration::ZERO };
    for number in numbers {
        let path = segment::path(folder, number);
        let size = fs::metadata(&path)?.len();
        match Segment::open(&path)? {
            Some(segment) => {
                if let Some(before) = found.segments.back_mut().filter(|_| segment.acknowledged > found.end) {
                    let (first, last) = (found.end, segment.acknowledged - 1);
                    tracing::error!(
                        segment = before.number,
                        first,
                        last,
                        "{DAMAGED}: these numbers are missing"
                    );
                    put_aside(folder, before);
                }
                let placed = look_through(folder, segment, number, size, stored, &mut found);
                found.segments.push_back(placed);
            }
            // made, and not yet written when its gateway ended
            None if is_zero(&path)? => fs::remove_file(&path)?,
            None => {
                let aside = path.with_extension(segment::DAMAGED);
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

fn look_through(
    folder: &Path,
    segment: Segment,
    number: u64,
    size: u64,
    stored: u64,
    found: &mut Recovered,
) -> Placed {
    let mut placed =
        Placed { number, size, written: segment::BEGIN, end: segment.first, sealed: true, damaged: false };
    let mut walk = Walk::new(segment);
    while let Some(step) = walk.step(size) {
        match step {
            Step::Record(first, record) => {
                placed.end = first + u64::from(record.entries);
                if found.oldest.is_zero() && placed.end > stored {
                    found.oldest = entry::received(&record.bytes).map_or(Duration::ZERO, entry::age);
                }
            }
            Step::Damage { from, to } => {
                tracing::error!(segment = number, from, to, "{DAMAGED}");
                put_aside(folder, &mut placed);
            }
        }
    }
    // What a kill has left in the page cache counts from here on, and so must outlast a loss of power.
    if let Err(error) = walk.sync() {
        tracing::error!(segment = number, %error, "a segment cannot be synced");
    }
    placed.written = walk.offset;
    let end_of_file = walk.torn_end(size);
    if end_of_file > walk.offset {
        // A killed gateway leaves this: what it was about to write, and had not acknowledged. If it is damage, the
        // segment that was made after this one tells.
        tracing::warn!(segment = number, from = walk.offset, "a segment ends in what is not a whole record");
    }
    // Nothing more is written into it: the room that it has kept is free. Otherwise some kills would fill the queue.
    if end_of_file < size && cut(&segment::path(folder, number), end_of_file).is_ok() {
        placed.size = end_of_file;
    }
    found.end = found.end.max(placed.end);
    placed
}

fn cut(path: &Path, end: u64) -> io::Result<()> {
    File::options().write(true).open(path)?.set_len(end)
}

fn is_zero(path: &Path) -> io::Result<bool> {
    Ok(fs::read(path)?.iter().all(|byte| *byte == 0))
}
