//! A file of the queue: records one behind the other, each with what shows that it is whole.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 to 44 | `acidlog1`; the segment's salt, 16 random bytes; the number of its first entry; the number behind the last entry that was acknowledged before it was made; a checksum of these |
//! | 512 to 556 | the same again |
//! | from 1024 | records |
//!
//! Of each record:
//!
//! | bytes | what |
//! | --- | --- |
//! | 4, 4 | a mark, and the length of its content |
//! | 4, 8 | how many entries it holds, and the number of the first |
//! | 4, 4 | a checksum of its content; a checksum of the salt and of all before |
//! | n | its content (`entry::record`) |
//!
//! A record that cannot be read costs no other: the next is found by its mark. Nobody can write something into a
//! message that would be taken for a record, because nobody outside knows the salt.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use bytes::Bytes;
use rand::RngExt;

use crate::{folder, queue::Record};

/// Where the records begin.
pub(super) const BEGIN: u64 = 1024;
/// Bytes of a record without its content.
pub(super) const HEAD: usize = 28;
/// The most bytes of a record's content: more than a request may have.
pub(super) const CONTENT: usize = 64 << 20;

/// How the name of a segment ends that was put aside.
pub(super) const DAMAGED: &str = "damaged";

const NAME: &[u8; 8] = b"acidlog1";
const MARK: [u8; 4] = [0xf1, 0x0e, 0xca, 0x11];
/// Where the segment's head is written: in two sectors.
const HEADS: [u64; 2] = [0, 512];
/// How much is read at once.
const CHUNK: usize = 1 << 20;
static ZEROS: [u8; CHUNK] = [0; CHUNK];
/// What is read singly where a disk cannot read a chunk.
const BLOCK: usize = 4096;
/// How often it is tried again to read a chunk, and after how long each time.
const PATIENCE: usize = 5;
const PAUSE: Duration = Duration::from_millis(100);

type Salt = [u8; 16];

/// A segment's file.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) file: File,
    pub(super) salt: Salt,
    /// The number of its first entry.
    pub(super) first: u64,
    /// The number behind the last entry that was acknowledged before it was made: all of these are in the segments
    /// before it, or stored. Entries from here to the first were refused, because they could not be synced.
    pub(super) acknowledged: u64,
}

/// The first number, and the one behind the last that was acknowledged, of a new segment's head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub(super) first: u64,
    pub(super) acknowledged: u64,
}

pub(super) fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:016}.segment"))
}

/// The number of the segment in the file with this name, if it is one's, and whether it is in use: not put aside.
pub(super) fn number(name: &str) -> Option<(u64, bool)> {
    let (number, extension) = name.split_once('.')?;
    let is_segment = extension == "segment";
    number.parse().ok().filter(|_| is_segment || extension == DAMAGED).map(|number| (number, is_segment))
}

impl Segment {
    /// Makes a segment whose room is taken on the disk at once, so that the disk is full now or not before the segment
    /// is. The file and its name are synced.
    pub(super) fn create(folder: &Path, number: u64, numbers: Numbers, size: u64) -> io::Result<Self> {
        let path = path(folder, number);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        let Numbers { first, acknowledged } = numbers;
        let made = Self { file, salt: rand::rng().random(), first, acknowledged };
        match made.write_heads(size).and_then(|()| File::open(folder)?.sync_all()) {
            Ok(()) => Ok(made),
            Err(error) => {
                // a segment without a record is of no use, and takes room
                let _ = std::fs::remove_file(&path);
                Err(error)
            }
        }
    }

    fn write_heads(&self, size: u64) -> io::Result<()> {
        // where a file system cannot, it grows
        folder::take_room(&self.file, size)?;
        let mut head = Vec::new();
        head.extend(NAME);
        head.extend(self.salt);
        head.extend(self.first.to_le_bytes());
        head.extend(self.acknowledged.to_le_bytes());
        head.extend(crc32fast::hash(&head).to_le_bytes());
        for place in HEADS {
            self.file.write_all_at(&head, place)?;
        }
        self.file.sync_all()
    }

    /// Opens a segment for reading. `None` if it has no head that is whole: then none of its records can be told from
    /// others.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        let head = HEADS.into_iter().find_map(|place| {
            let mut head = [0; 44];
            read_patiently(&file, &mut head, place).ok()?;
            let (said, crc) = head.split_last_chunk::<4>()?;
            if u32::from_le_bytes(*crc) != crc32fast::hash(said) {
                return None;
            }
            let rest = said.strip_prefix(NAME)?;
            let (salt, rest) = rest.split_first_chunk::<16>()?;
            let (first, acknowledged) = rest.split_first_chunk::<8>()?;
            Some((*salt, u64::from_le_bytes(*first), u64::from_le_bytes(acknowledged.try_into().ok()?)))
        });
        Ok(head.map(|(salt, first, acknowledged)| Self { file, salt, first, acknowledged }))
    }

    /// Appends a record's bytes to `to`; its first entry has this number.
    pub(super) fn frame(&self, record: &Record, content_crc: u32, first: u64, to: &mut Vec<u8>) {
        let begin = to.len();
        to.extend(MARK);
        // a request's body is far smaller
        to.extend(u32::try_from(record.bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        to.extend(record.entries.to_le_bytes());
        to.extend(first.to_le_bytes());
        to.extend(content_crc.to_le_bytes());
        let crc = head_crc(&self.salt, to.get(begin..).unwrap_or_default());
        to.extend(crc.to_le_bytes());
        to.extend(&record.bytes[..]);
    }
}

fn head_crc(salt: &Salt, head: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(salt);
    crc.update(head);
    crc.finalize()
}

/// What lies at a place of a segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A record, with the number of its first entry.
    Record(u64, Record),
    /// Bytes that are no record, before one that is: acknowledged entries were lost here.
    Damage { from: u64, to: u64 },
}

/// Reads the records of a segment one after the other.
#[derive(Debug)]
pub(super) struct Walk {
    file: File,
    salt: Salt,
    /// Where the next record is expected.
    pub(super) offset: u64,
    /// What was read of the file, from this place on.
    read: Vec<u8>,
    read_at: u64,
}

enum Seen {
    Record {
        first: u64,
        entries: u32,
        length: usize,
    },
    /// So many bytes are needed to tell.
    Short(usize),
    Nothing,
}

impl Walk {
    pub(super) fn new(segment: Segment) -> Self {
        Self { file: segment.file, salt: segment.salt, offset: BEGIN, read: Vec::new(), read_at: 0 }
    }

    /// The next record that ends at or before `limit`, or the damage before it. `None` if there is none: then `offset`
    /// is behind the last record.
    pub(super) fn step(&mut self, limit: u64) -> Option<Step> {
        let from = self.offset;
        let mut at = from;
        while let Some(place) = self.find_mark(at, limit) {
            if let Some((first, entries, length)) = self.record_at(place, limit) {
                if place > from {
                    self.offset = place;
                    return Some(Step::Damage { from, to: place });
                }
                let content = self.bytes(place + HEAD as u64, length, limit)?;
                let record = Record { bytes: Bytes::copy_from_slice(content), entries };
                self.offset = place + (HEAD + length) as u64;
                return Some(Step::Record(first, record));
            }
            at = place + 1;
        }
        None
    }

    /// Where the next mark stands, from `at` on.
    fn find_mark(&mut self, mut at: u64, limit: u64) -> Option<u64> {
        while at + HEAD as u64 <= limit {
            let window = usize::try_from(limit - at).unwrap_or(usize::MAX).min(CHUNK);
            let bytes = self.bytes(at, window, limit)?;
            // what a segment keeps room for is zeros mostly, and these are compared faster than searched
            let mark = if is_zero(bytes) { None } else { memchr::memmem::find(bytes, &MARK) };
            if let Some(place) = mark {
                return Some(at + place as u64);
            }
            // a mark may lie across the end of the window
            at += (window - (MARK.len() - 1)) as u64;
        }
        None
    }

    fn record_at(&mut self, place: u64, limit: u64) -> Option<(u64, u32, usize)> {
        let mut need = HEAD;
        loop {
            let salt = self.salt;
            match look(self.bytes(place, need, limit)?, &salt) {
                Seen::Record { first, entries, length } => return Some((first, entries, length)),
                Seen::Short(bytes) if bytes > need => need = bytes,
                Seen::Short(_) | Seen::Nothing => return None,
            }
        }
    }

    /// So many bytes from a place on; `None` if they reach beyond the limit.
    fn bytes(&mut self, at: u64, length: usize, limit: u64) -> Option<&[u8]> {
        let end = at.checked_add(length as u64).filter(|end| *end <= limit)?;
        if at < self.read_at || end > self.read_at + self.read.len() as u64 {
            let most = usize::try_from(limit - at).unwrap_or(usize::MAX);
            self.fill(at, length.max(CHUNK).min(most));
        }
        let begin = usize::try_from(at - self.read_at).ok()?;
        self.read.get(begin..begin + length)
    }

    /// Reads bytes; those that the disk cannot read are zeros.
    fn fill(&mut self, at: u64, length: usize) {
        if self.read.len() != length {
            self.read = vec![0; length];
        }
        self.read_at = at;
        if read_patiently(&self.file, &mut self.read, at).is_err() {
            self.read.fill(0);
            for (place, block) in self.read.chunks_mut(BLOCK).enumerate() {
                if read_at(&self.file, block, at + (place * BLOCK) as u64).is_err() {
                    block.fill(0);
                }
            }
        }
    }

    /// Syncs what was written into the file.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Where what lies behind the last record ends, which is no whole record: only zeros follow.
    pub(super) fn torn_end(&mut self, limit: u64) -> u64 {
        let (mut at, mut end) = (self.offset, self.offset);
        while at < limit {
            let length = usize::try_from(limit - at).unwrap_or(usize::MAX).min(CHUNK);
            let Some(bytes) = self.bytes(at, length, limit) else { return limit };
            if !is_zero(bytes) {
                let last = bytes.iter().rposition(|byte| *byte != 0).unwrap_or_default();
                end = at + last as u64 + 1;
            }
            at += length as u64;
        }
        end
    }
}

/// Whether these bytes, no more than a chunk, are zeros.
fn is_zero(bytes: &[u8]) -> bool {
    ZEROS.get(..bytes.len()).is_some_and(|zeros| zeros == bytes)
}

/// Reads as `read_at` does, and again where that fails: what a disk cannot read now, it may read in a moment.
fn read_patiently(file: &File, buffer: &mut [u8], at: u64) -> io::Result<()> {
    for _ in 0..PATIENCE {
        if read_at(file, buffer, at).is_ok() {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
    read_at(file, buffer, at)
}

/// Reads until the buffer is full; behind the end of the file are zeros.
fn read_at(file: &File, mut buffer: &mut [u8], mut at: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match file.read_at(buffer, at) {
            Ok(0) => {
                buffer.fill(0);
                return Ok(());
            }
            Ok(read) => {
                buffer = buffer.split_at_mut(read).1;
                at += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether these bytes begin with a whole record.
fn look(bytes: &[u8], salt: &Salt) -> Seen {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else { return Seen::Short(HEAD) };
    let word = |at: usize| head.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_le_bytes);
    let first = head.get(12..20).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
    let (Some(length), Some(entries), Some(first), Some(content_crc), Some(crc)) =
        (word(4), word(8), first, word(20), word(24))
    else {
        return Seen::Nothing;
    };
    let length = length as usize;
    if !head.starts_with(&MARK) || length > CONTENT || crc != head_crc(salt, &head[..HEAD - 4]) {
        return Seen::Nothing;
    }
    match rest.get(..length) {
        None => Seen::Short(HEAD + length),
        Some(content) if crc32fast::hash(content) == content_crc => Seen::Record { first, entries, length },
        Some(_) => Seen::Nothing,
    }
}
