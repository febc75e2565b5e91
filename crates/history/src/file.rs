//! Histories in files: one for each thread that runs clients, so that none waits for another.
//!
//! A file begins with [`MAGIC`] and [`VERSION`]. Each transaction is a record: its length as a [varint](crate::varint), and so
//! many bytes. A record of length 0 ends the file, followed by the number of records, the number of transactions that were
//! left out, and the CRC-32 of everything before it. A file without that end is damaged.
//!
//! A record holds how the transaction ended, its session and number, its start as a difference to the record before, how long
//! it took, and its operations. A list is written as how much of it was at the beginning of what was last read of this list in
//! the same file, and what follows, so that a file does not grow with the length of its lists.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Write},
    path::{Path, PathBuf},
};

use crc32fast::Hasher;

use crate::{
    Error, Operation, Outcome, Source, Total, Transaction,
    varint::{put, take, unzigzag, zigzag},
};

/// What a file begins with.
pub const MAGIC: [u8; 8] = *b"acidhist";
/// Version of the format, the byte after [`MAGIC`].
pub const VERSION: u8 = 2;

/// Longest record that is read: more than any client writes, and less than would harm.
const LONGEST: u64 = 64 << 20;
/// Lists of which the last read is remembered.
const REMEMBERED: u32 = 256;
const BUFFER: usize = 256 << 10;

const APPEND: u8 = 0;
const READ_LIST: u8 = 1;
const WRITE: u8 = 2;
const READ_REGISTER: u8 = 3;
const READ_NOTHING: u8 = 4;
const TRANSFER: u8 = 5;

/// How much a writer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most transactions.
    pub transactions: u64,
    /// Most bytes, the end of the file not counted.
    pub bytes: u64,
}

impl Default for Limits {
    /// Ten million transactions, one gibibyte.
    fn default() -> Self {
        Self { transactions: 10_000_000, bytes: 1 << 30 }
    }
}

/// Writes a history to a file, up to its limits. What comes after that is counted.
#[derive(Debug)]
pub struct Writer {
    file: BufWriter<File>,
    path: PathBuf,
    crc: Hasher,
    limits: Limits,
    coding: Coding,
    record: Vec<u8>,
    frame: Vec<u8>,
    written: u64,
    bytes: u64,
    left_out: u64,
}

/// What reader and writer must know of the records before.
#[derive(Debug, Default)]
struct Coding {
    start: u64,
    lists: Vec<(u32, Vec<u64>)>,
    /// Memory of lists that were handed on before.
    spare: Vec<Vec<u64>>,
}

impl Coding {
    /// What was last read of the list, or nothing if that is forgotten.
    fn last(&mut self, key: u32) -> &mut Vec<u64> {
        if self.lists.is_empty() {
            self.lists.resize_with(REMEMBERED as usize, || (0, Vec::new()));
        }
        let (of, last) = &mut self.lists[(key % REMEMBERED) as usize];
        if *of != key {
            *of = key;
            last.clear();
        }
        last
    }
}

impl Writer {
    /// Writes to a file that is empty. Errors say that it is at `path`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(file: File, path: &Path, limits: Limits) -> Result<Self, Error> {
        let mut writer = Self {
            file: BufWriter::with_capacity(BUFFER, file),
            path: path.to_owned(),
            crc: Hasher::new(),
            limits,
            coding: Coding::default(),
            record: Vec::new(),
            frame: Vec::new(),
            written: 0,
            bytes: 0,
            left_out: 0,
        };
        writer.frame.extend(MAGIC);
        writer.frame.push(VERSION);
        writer.flush_frame()?;
        Ok(writer)
    }

    /// Writes a transaction, or counts it as left out: whether there was room for it. Once one is left out, so are all that follow.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, transaction: &Transaction) -> Result<bool, Error> {
        if self.left_out > 0 || self.written >= self.limits.transactions {
            self.left_out += 1;
            return Ok(false);
        }
        self.record.clear();
        encode(&mut self.record, &mut self.coding, transaction);
        put(&mut self.frame, self.record.len() as u64);
        self.frame.extend_from_slice(&self.record);
        if self.bytes + self.frame.len() as u64 > self.limits.bytes {
            self.frame.clear();
            self.left_out += 1;
            return Ok(false);
        }
        self.written += 1;
        self.flush_frame()?;
        Ok(true)
    }

    /// Writes the end, and says how many transactions were left out.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self) -> Result<u64, Error> {
        put(&mut self.frame, 0);
        put(&mut self.frame, self.written);
        put(&mut self.frame, self.left_out);
        self.flush_frame()?;
        let crc = self.crc.finalize();
        let written = self.file.write_all(&crc.to_le_bytes()).and_then(|()| self.file.flush());
        written.map_err(|source| io_error(&self.path, source))?;
        Ok(self.left_out)
    }

    fn flush_frame(&mut self) -> Result<(), Error> {
        self.crc.update(&self.frame);
        self.bytes += self.frame.len() as u64;
        let written = self.file.write_all(&self.frame);
        self.frame.clear();
        written.map_err(|source| io_error(&self.path, source))
    }
}

fn io_error(path: &Path, source: io::Error) -> Error {
    Error::Io { path: path.to_owned(), source }
}

fn encode(record: &mut Vec<u8>, coding: &mut Coding, transaction: &Transaction) {
    let outcome = match transaction.outcome {
        Outcome::Committed => 0,
        Outcome::Aborted => 1,
        Outcome::Unknown => 2,
    };
    let after_write = transaction.total.is_some_and(|total| total.after_write);
    record.push(outcome | u8::from(transaction.total.is_some()) << 2 | u8::from(after_write) << 3);
    put(record, transaction.session.into());
    put(record, transaction.sequence.into());
    put(record, zigzag(transaction.start.wrapping_sub(coding.start).cast_signed()));
    coding.start = transaction.start;
    // an end before the start is none; 0 says that there is none
    let took = transaction.end.map_or(0, |end| end.saturating_sub(transaction.start).saturating_add(1));
    put(record, took);
    if let Some(total) = transaction.total {
        put(record, zigzag(total.observed));
        put(record, zigzag(total.expected));
    }
    put(record, transaction.operations.len() as u64);
    for operation in &transaction.operations {
        encode_operation(record, coding, operation);
    }
}

fn encode_operation(record: &mut Vec<u8>, coding: &mut Coding, operation: &Operation) {
    let mut head = |kind, key: u32| {
        record.push(kind);
        put(record, key.into());
    };
    match operation {
        Operation::Append { key, value } => {
            head(APPEND, *key);
            put(record, *value);
        }
        Operation::Write { key, value } => {
            head(WRITE, *key);
            put(record, *value);
        }
        Operation::ReadRegister { key, value: Some(value) } => {
            head(READ_REGISTER, *key);
            put(record, *value);
        }
        Operation::ReadRegister { key, value: None } => head(READ_NOTHING, *key),
        Operation::Transfer { from, to, amount } => {
            head(TRANSFER, *from);
            put(record, (*to).into());
            put(record, zigzag(*amount));
        }
        Operation::ReadList { key, values } => {
            head(READ_LIST, *key);
            let last = coding.last(*key);
            let same = last.iter().zip(values).take_while(|(a, b)| a == b).count();
            put(record, same as u64);
            put(record, (values.len() - same) as u64);
            for &value in &values[same..] {
                put(record, value);
            }
            last.truncate(same);
            last.extend_from_slice(&values[same..]);
        }
    }
}

/// The files of a history, which together are a [`Source`].
#[derive(Debug)]
pub struct Files {
    paths: Vec<PathBuf>,
    left_out: u64,
}

impl Files {
    /// The history that is in these files, in this order. They are opened anew for each pass.
    #[must_use]
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self { paths, left_out: 0 }
    }
}

impl Source for Files {
    fn pass(&mut self, each: &mut dyn FnMut(&Transaction)) -> Result<(), Error> {
        self.left_out = 0;
        for path in &self.paths {
            let mut reader = Reader::open(path)?;
            while let Some(transaction) = reader.next_transaction()? {
                each(transaction);
            }
            self.left_out += reader.left_out;
        }
        Ok(())
    }

    fn left_out(&self) -> u64 {
        self.left_out
    }
}

struct Reader<'a> {
    path: &'a Path,
    file: BufReader<File>,
    crc: Hasher,
    coding: Coding,
    record: Vec<u8>,
    transaction: Transaction,
    read: u64,
    /// Known once the end was read.
    left_out: u64,
}

impl<'a> Reader<'a> {
    fn open(path: &'a Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|source| io_error(path, source))?;
        let mut file = BufReader::with_capacity(BUFFER, file);
        let mut head = Vec::new();
        let length = MAGIC.len() as u64 + 1;
        (&mut file).take(length).read_to_end(&mut head).map_err(|source| io_error(path, source))?;
        let mut expected = MAGIC.to_vec();
        expected.push(VERSION);
        if head != expected {
            return Err(Error::Format { path: path.to_owned() });
        }
        let mut crc = Hasher::new();
        crc.update(&head);
        let transaction = Transaction {
            session: 0,
            sequence: 0,
            start: 0,
            end: None,
            outcome: Outcome::Unknown,
            operations: Vec::new(),
            total: None,
        };
        Ok(Self {
            path,
            file,
            crc,
            coding: Coding::default(),
            record: Vec::new(),
            transaction,
            read: 0,
            left_out: 0,
        })
    }

    /// The next transaction; none at the end.
    fn next_transaction(&mut self) -> Result<Option<&Transaction>, Error> {
        let length = self.number()?;
        if length == 0 {
            self.end()?;
            return Ok(None);
        }
        if length > LONGEST {
            return Err(self.damaged(format!("after transaction {}", self.read)));
        }
        self.record.clear();
        let mut take_record = (&mut self.file).take(length);
        take_record.read_to_end(&mut self.record).map_err(|source| io_error(self.path, source))?;
        if (self.record.len() as u64) < length {
            return Err(self.cut_off());
        }
        self.crc.update(&self.record);
        if decode(&self.record, &mut self.coding, &mut self.transaction).is_none() {
            return Err(self.damaged(format!("at transaction {}", self.read + 1)));
        }
        self.read += 1;
        Ok(Some(&self.transaction))
    }

    fn end(&mut self) -> Result<(), Error> {
        let (written, left_out) = (self.number()?, self.number()?);
        let mut crc = [0; 4];
        match self.file.read_exact(&mut crc) {
            Err(source) if source.kind() == ErrorKind::UnexpectedEof => return Err(self.cut_off()),
            Err(source) => return Err(io_error(self.path, source)),
            Ok(()) => {}
        }
        if written != self.read || u32::from_le_bytes(crc) != self.crc.clone().finalize() {
            return Err(self.damaged("somewhere: its checksum is wrong".to_owned()));
        }
        self.left_out = left_out;
        Ok(())
    }

    /// A number between the records.
    fn number(&mut self) -> Result<u64, Error> {
        let mut bytes = [0; 10];
        for end in 0..bytes.len() {
            let byte = match self.file.fill_buf() {
                Ok([]) => return Err(self.cut_off()),
                Ok([byte, ..]) => *byte,
                Err(source) => return Err(io_error(self.path, source)),
            };
            self.file.consume(1);
            bytes[end] = byte;
            if byte < 0x80 {
                self.crc.update(&bytes[..=end]);
                let number = take(&mut &bytes[..=end]);
                return number.ok_or_else(|| self.damaged(format!("after transaction {}", self.read)));
            }
        }
        Err(self.damaged(format!("after transaction {}", self.read)))
    }

    fn cut_off(&self) -> Error {
        self.damaged(format!("after transaction {}: its end is missing", self.read))
    }

    fn damaged(&self, place: String) -> Error {
        Error::Damaged { path: self.path.to_owned(), place }
    }
}

/// `None` if the record makes no sense.
fn decode(mut record: &[u8], coding: &mut Coding, transaction: &mut Transaction) -> Option<()> {
    let record = &mut record;
    let (&flags, rest) = record.split_first()?;
    *record = rest;
    transaction.outcome = match flags & 3 {
        0 => Outcome::Committed,
        1 => Outcome::Aborted,
        2 => Outcome::Unknown,
        _ => return None,
    };
    transaction.session = take_u32(record)?;
    transaction.sequence = take_u32(record)?;
    coding.start = coding.start.wrapping_add(unzigzag(take(record)?).cast_unsigned());
    transaction.start = coding.start;
    transaction.end = match take(record)? {
        0 => None,
        took => Some(coding.start.saturating_add(took - 1)),
    };
    transaction.total = if flags & 4 == 0 {
        None
    } else {
        let (observed, expected) = (unzigzag(take(record)?), unzigzag(take(record)?));
        Some(Total { observed, expected, after_write: flags & 8 > 0 })
    };
    coding.spare.extend(transaction.operations.drain(..).filter_map(|operation| match operation {
        Operation::ReadList { values, .. } => Some(values),
        _ => None,
    }));
    let count = take(record)?;
    for _ in 0..count {
        transaction.operations.push(decode_operation(record, coding)?);
    }
    record.is_empty().then_some(())
}

fn take_u32(record: &mut &[u8]) -> Option<u32> {
    u32::try_from(take(record)?).ok()
}

fn decode_operation(record: &mut &[u8], coding: &mut Coding) -> Option<Operation> {
    let (&kind, rest) = record.split_first()?;
    *record = rest;
    let key = take_u32(record)?;
    Some(match kind {
        APPEND => Operation::Append { key, value: take(record)? },
        WRITE => Operation::Write { key, value: take(record)? },
        READ_REGISTER => Operation::ReadRegister { key, value: Some(take(record)?) },
        READ_NOTHING => Operation::ReadRegister { key, value: None },
        TRANSFER => Operation::Transfer { from: key, to: take_u32(record)?, amount: unzigzag(take(record)?) },
        READ_LIST => {
            let last = coding.last(key);
            let same = usize::try_from(take(record)?).ok().filter(|&same| same <= last.len())?;
            // each value takes a byte or more
            let more = usize::try_from(take(record)?).ok().filter(|&more| more <= record.len())?;
            last.truncate(same);
            for _ in 0..more {
                last.push(take(record)?);
            }
            let mut values = coding.spare.pop().unwrap_or_default();
            values.clear();
            values.extend_from_slice(coding.last(key));
            Operation::ReadList { key, values }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transactions() -> Vec<Transaction> {
        (0..500)
            .map(|n: u32| Transaction {
                session: n % 7,
                sequence: n / 7,
                start: 1_000_000 + u64::from(n) * 37 - u64::from(n % 5) * 100,
                end: (!n.is_multiple_of(11)).then(|| 1_000_500 + u64::from(n) * 37),
                outcome: [Outcome::Committed, Outcome::Aborted, Outcome::Unknown][n as usize % 3],
                operations: vec![
                    Operation::ReadList {
                        key: n % 4 + n / 100 * 256,
                        values: (0..u64::from(n % 64)).collect(),
                    },
                    Operation::Append { key: n % 4, value: u64::MAX - u64::from(n) },
                    Operation::ReadRegister { key: n % 2, value: (n.is_multiple_of(2)).then_some(n.into()) },
                    Operation::Write { key: u32::MAX, value: n.into() },
                    Operation::Transfer { from: n, to: u32::MAX - n, amount: i64::from(n) - 250 },
                ],
                total: (n.is_multiple_of(10)).then_some(Total {
                    observed: -5,
                    expected: i64::MAX,
                    after_write: n.is_multiple_of(20),
                }),
            })
            .collect()
    }

    fn write(path: &Path, limits: Limits, transactions: &[Transaction]) -> u64 {
        let mut writer = Writer::new(File::create(path).unwrap(), path, limits).unwrap();
        for transaction in transactions {
            writer.write(transaction).unwrap();
        }
        writer.finish().unwrap()
    }

    fn read(paths: &[&Path]) -> Result<(Vec<Transaction>, u64), Error> {
        let mut files = Files::new(paths.iter().map(|&path| path.to_owned()).collect());
        let mut read = Vec::new();
        files.pass(&mut |transaction| read.push(transaction.clone()))?;
        Ok((read, files.left_out()))
    }

    #[test]
    fn transactions_come_back_from_several_files() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        let transactions = transactions();
        assert_eq!(write(&one, Limits::default(), &transactions[..200]), 0);
        assert_eq!(write(&two, Limits::default(), &transactions[200..]), 0);
        assert_eq!(read(&[&one, &two]).unwrap(), (transactions, 0));
    }

    #[test]
    fn what_is_beyond_the_limit_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let transactions = transactions();
        for limits in
            [Limits { transactions: 123, ..Limits::default() }, Limits { bytes: 4_000, ..Limits::default() }]
        {
            let left_out = write(&path, limits, &transactions);
            let (read, told) = read(&[&path]).unwrap();
            assert!(left_out > 0 && !read.is_empty());
            assert_eq!(read, transactions[..read.len()]);
            assert_eq!(told, left_out);
            assert_eq!(read.len() as u64 + left_out, 500);
        }
    }

    #[test]
    fn a_file_that_is_cut_off_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        write(&path, Limits::default(), &transactions());
        let whole = std::fs::read(&path).unwrap();
        for length in (0..whole.len()).step_by(61).chain(whole.len() - 8..whole.len()) {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(read(&[&path]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn damage_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        write(&path, Limits::default(), &transactions());
        let whole = std::fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(31) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x21;
            std::fs::write(&path, &damaged).unwrap();
            assert!(read(&[&path]).is_err(), "byte {at}");
        }
    }
}
