//! What happens in a run, for any number of readers: each gets every event once, in order, however slow it is, as long as
//! the event is kept.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use tokio::sync::watch;

use crate::Event;

/// Events of a run that are kept for readers who come later: more than an hour of seconds.
const KEPT: usize = 5_000;

/// Bytes of them that are kept.
const BYTES: usize = 8 << 20;

/// Bytes that a reader gets at once, as long as a single event is not longer.
const AT_ONCE: usize = 256 << 10;

/// What happens in one run, from its being asked for, or going on, to its end.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Tells the events of this run from those of others, and of the same run before it went on.
    mark: u64,
    events: Mutex<Events>,
    /// The number of the next event, and whether there will be one.
    next: watch::Sender<Next>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Next {
    number: u64,
    is_over: bool,
}

#[derive(Debug, Default)]
struct Events {
    /// How many trials there will be, which a reader has to know, however late.
    begun: Option<Bytes>,
    kept: VecDeque<Kept>,
    bytes: usize,
}

/// An event as it is sent: the same bytes for all readers.
#[derive(Debug)]
struct Kept {
    number: u64,
    name: &'static str,
    text: Bytes,
}

/// A reader's place in the events of a run.
pub(crate) struct Reader {
    shared: Arc<Shared>,
    next: watch::Receiver<Next>,
    /// The number of the next event that it gets.
    at: u64,
}

impl Default for Live {
    fn default() -> Self {
        // the library seeds it at random
        let mark = RandomState::new().hash_one(0);
        let (next, _) = watch::channel(Next { number: 1, is_over: false });
        Self { shared: Arc::new(Shared { mark, events: Mutex::default(), next }) }
    }
}

impl Live {
    pub(crate) fn tell(&self, event: &Event) {
        // a type of our own without a map of other keys than texts always has JSON
        let Ok(data) = serde_json::to_string(event) else { return };
        let mut events = self.shared.lock();
        let (number, name, mark) = (self.shared.next.borrow().number, event.name(), self.shared.mark);
        if event.is_passing() && events.kept.back().is_some_and(|last| last.name == name) {
            // readers who come later are spared it
            events.drop_one(VecDeque::pop_back);
        }
        let text = Bytes::from(format!("event: {name}\nid: {mark:x}-{number}\ndata: {data}\n\n"));
        if matches!(event, Event::Begun { .. }) {
            events.begun = Some(text.clone());
        }
        events.bytes += text.len();
        events.kept.push_back(Kept { number, name, text });
        while events.kept.len() > KEPT || events.bytes > BYTES {
            events.drop_one(VecDeque::pop_front);
        }
        drop(events);
        self.shared.next.send_modify(|next| next.number = number + 1);
    }

    /// Says that there will be no other event.
    pub(crate) fn end(&self) {
        self.shared.next.send_modify(|next| next.is_over = true);
    }

    /// A reader of what comes after the event with this id; of all that is kept if it is none of this run's.
    pub(crate) fn read_after(&self, last: Option<&str>) -> Reader {
        let last = last.and_then(|last| {
            let (mark, number) = last.split_once('-')?;
            let is_ours = u64::from_str_radix(mark, 16).is_ok_and(|mark| mark == self.shared.mark);
            number.parse::<u64>().ok().filter(|number| is_ours && *number < self.shared.next.borrow().number)
        });
        let next = self.shared.next.subscribe();
        Reader { shared: Arc::clone(&self.shared), at: last.map_or(0, |last| last + 1), next }
    }
}

impl Events {
    fn drop_one(&mut self, take: impl FnOnce(&mut VecDeque<Kept>) -> Option<Kept>) {
        if let Some(dropped) = take(&mut self.kept) {
            self.bytes -= dropped.text.len();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reader {
    /// Events that are new to the reader, as one text; waits until there are some. None once the run is over.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            let is_over = self.next.borrow_and_update().is_over;
            if let Some(new) = self.take() {
                return Some(new);
            }
            if is_over {
                return None;
            }
            self.next.changed().await.ok()?;
        }
    }

    fn take(&mut self) -> Option<Bytes> {
        let (shared, from) = (Arc::clone(&self.shared), self.at);
        let events = shared.lock();
        let mut new = Vec::new();
        let has_lost = events.kept.front().is_some_and(|first| first.number > 1);
        if let Some(begun) = events.begun.as_ref().filter(|_| from == 0 && has_lost) {
            new.extend_from_slice(begun);
        }
        for event in events.kept.iter().filter(|event| event.number >= from) {
            if !new.is_empty() && new.len() + event.text.len() > AT_ONCE {
                break;
            }
            new.extend_from_slice(&event.text);
            self.at = event.number + 1;
        }
        (!new.is_empty()).then(|| new.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_comes_late_knows_how_many_trials_there_are() {
        let live = Live::default();
        live.tell(&Event::Begun { least: 7, most: 9, so_far: crate::SoFarEvent::default() });
        let first = read(&mut live.read_after(None)).await;
        (0..KEPT as u64).for_each(|number| live.tell(&trial(number)));
        live.end();
        let late = read(&mut live.read_after(None)).await;
        assert!(late.starts_with(&first) && late.matches("begun").count() == 2, "{first}");
        let back = read(&mut live.read_after(Some(id(&first)))).await;
        assert!(!back.contains("begun"), "whoever comes back knows it");
    }

    fn doing(what: &str) -> Event {
        Event::Doing { what: what.to_owned(), seconds: 0.0 }
    }

    fn trial(number: u64) -> Event {
        Event::Trial { number, cell: "sqlite".to_owned() }
    }

    async fn read(reader: &mut Reader) -> String {
        String::from_utf8(reader.next().await.unwrap().to_vec()).unwrap()
    }

    fn id(text: &str) -> &str {
        text.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap()
    }

    #[tokio::test]
    async fn a_reader_gets_what_is_kept_and_what_comes_once_and_in_order() {
        let live = Live::default();
        live.tell(&trial(1));
        let mut reader = live.read_after(None);
        assert!(read(&mut reader).await.starts_with("event: trial\nid: "));
        live.tell(&trial(2));
        let second = read(&mut reader).await;
        live.tell(&trial(3));
        live.tell(&trial(4));
        let both = read(&mut reader).await;
        assert_eq!(both.matches("event: ").count(), 2, "{both}");
        assert_eq!(read(&mut live.read_after(Some(id(&second)))).await, both);
        // an id of another run, of this one before it went on, or of nobody
        let all = read(&mut live.read_after(None)).await;
        let foreign = id(&second).replacen(|digit: char| digit != '-', "0", 16);
        for last in [&*foreign, "3", "", "-", "x-1", "0-99999999999999999999"] {
            assert_eq!(read(&mut live.read_after(Some(last))).await, all, "{last}");
        }
        live.end();
        assert!(reader.next().await.is_none());
        assert!(live.read_after(Some(id(&both))).next().await.is_none());
    }

    #[tokio::test]
    async fn who_comes_later_is_spared_what_has_passed() {
        let live = Live::default();
        for what in ["a", "b", "c"] {
            live.tell(&doing(what));
        }
        live.tell(&Event::Loading { rows: 1, all: 2, seconds: 0.0 });
        live.tell(&trial(1));
        live.end();
        let all = read(&mut live.read_after(None)).await;
        assert!(all.contains("\"c\"") && !all.contains("\"a\"") && all.contains("-5\n"), "{all}");
    }

    #[tokio::test]
    async fn no_more_is_kept_than_there_is_room_for() {
        let live = Live::default();
        for number in 0..KEPT as u64 + 10 {
            live.tell(&trial(number));
        }
        live.end();
        let (mut reader, mut count) = (live.read_after(None), 0);
        while let Some(text) = reader.next().await {
            assert!(text.len() <= AT_ONCE);
            count += String::from_utf8_lossy(&text).matches("event: ").count();
        }
        assert_eq!(count, KEPT);
        let long = "x".repeat(BYTES / 4);
        for number in 0..9 {
            live.tell(&Event::Trial { number, cell: long.clone() });
        }
        assert!(live.shared.lock().bytes <= BYTES);
    }
}
