//! How much memory a trial's keys take, as the server says.

use std::{
    collections::HashSet,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
};

use acidtest_workloads::{Medium, TableSize};
use redis::pipe;

use super::{BATCH, Names};
use crate::{
    keys::Scan as Walk,
    protocol::{Connection, Error},
};

/// Keys of which the memory is asked for at most.
const SAMPLE: usize = 100_000;

/// Every n-th of the items that are offered, with the least n at which they are no more than a limit.
struct Evenly<T> {
    most: usize,
    step: u64,
    offered: u64,
    kept: Vec<T>,
}

impl<T> Evenly<T> {
    fn new(most: usize) -> Self {
        Self { most, step: 1, offered: 0, kept: Vec::new() }
    }

    fn offer(&mut self, item: T) {
        if self.offered.is_multiple_of(self.step) {
            self.kept.push(item);
        }
        self.offered += 1;
        while self.kept.len() > self.most {
            self.step *= 2;
            let mut place = 0_u64;
            self.kept.retain(|_| {
                place += 1;
                place % 2 == 1
            });
        }
    }
}

/// Keys of one kind.
#[derive(Clone, Copy, Default)]
struct Keys {
    all: u64,
    asked: u64,
    bytes: u64,
}

impl Keys {
    /// The bytes of all keys, by those of the keys that were asked for.
    fn scaled(self) -> u64 {
        let all = u128::from(self.bytes) * u128::from(self.all) / u128::from(self.asked.max(1));
        u64::try_from(all).unwrap_or(u64::MAX)
    }
}

/// The memory of the lists, which are the index, and of all other keys of the trial.
pub(super) async fn measure(connection: &mut Connection, names: &Names) -> Result<TableSize, Error> {
    let is_list = |key: &[u8]| key.starts_with(names.parcel.as_bytes());
    let (mut rows, mut data, mut index) = (0, Keys::default(), Keys::default());
    // SCAN may return a key twice; of each key only a hash is kept
    let (mut shown, hasher) = (HashSet::new(), BuildHasherDefault::<DefaultHasher>::default());
    let mut sample = Evenly::new(SAMPLE);
    let mut walk = Walk::of(&names.all);
    while let Some(keys) = walk.next(connection).await? {
        for key in keys {
            if !shown.insert(hasher.hash_one(&key)) {
                continue;
            }
            rows += u64::from(key.starts_with(names.scan.as_bytes()));
            let kind = if is_list(&key) { &mut index } else { &mut data };
            kind.all += 1;
            sample.offer(key);
        }
    }
    for keys in sample.kept.chunks(BATCH) {
        let mut ask = pipe();
        for key in keys {
            ask.cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0);
        }
        for (key, answer) in keys.iter().zip(connection.ask_all(&ask).await?) {
            let kind = if is_list(key) { &mut index } else { &mut data };
            kind.asked += 1;
            // none of a key that has vanished
            kind.bytes += answer?.optional()?.unwrap_or(0);
        }
    }
    let source = match sample.step {
        1 => "MEMORY USAGE of each key".to_owned(),
        step => format!("MEMORY USAGE of one key in {step}"),
    };
    Ok(TableSize {
        rows,
        data_bytes: Some(data.scaled()),
        index_bytes: Some(index.scaled()),
        medium: Medium::Memory,
        source: source + ", without the table of all keys: the server takes about a tenth more",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_drawn_evenly_and_scaled() {
        let drawn = |offered: u64| {
            let mut sample = Evenly::new(4);
            (0..offered).for_each(|item| sample.offer(item));
            (sample.step, sample.kept)
        };
        assert_eq!(drawn(4), (1, vec![0, 1, 2, 3]));
        assert_eq!(drawn(5), (2, vec![0, 2, 4]));
        assert_eq!(drawn(20), (8, vec![0, 8, 16]));
        assert_eq!(Keys { all: 1_000, asked: 10, bytes: 905 }.scaled(), 90_500);
        assert_eq!(Keys::default().scaled(), 0);
    }
}
