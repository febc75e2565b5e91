//! What a play shows: that the anomaly occurred, or what prevented it. By values, commits and errors alone: that a step waited proves
//! nothing by itself.

use acidtest_workloads::interactive::Reply;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    play::{Ending, Happened, Play, in_brackets},
    script::{Clue, Rows, Script},
};

/// What prevented an anomaly, from the latest to the earliest in a transaction's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// A transaction was refused when it was to commit.
    RefusedAtCommit,
    /// A statement was refused: by a conflict, a deadlock or a lock that was not given.
    RefusedAtWrite,
    /// A statement waited until others were done.
    Blocked,
    /// Nothing waited or was refused: what was read was as it had been before others changed it.
    OldVersion,
    /// Nothing waited or was refused, and nothing was read before the commits: each transaction was carried out at its commit, one
    /// after the other.
    InTurn,
}

impl How {
    /// It in words, for tables.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::RefusedAtCommit => "refused at commit",
            Self::RefusedAtWrite => "refused at a statement",
            Self::Blocked => "blocked",
            Self::OldVersion => "old version read",
            Self::InTurn => "carried out in turn",
        }
    }

    /// The entry of a table, each form shorter than the one before.
    #[must_use]
    pub fn forms(self) -> &'static [&'static str] {
        match self {
            Self::RefusedAtCommit => &["✓ refused at commit", "✓ at commit"],
            Self::RefusedAtWrite => &["✓ refused at a statement", "✓ refused"],
            Self::Blocked => &["✓ blocked"],
            Self::OldVersion => &["✓ old version read", "✓ old version", "✓ old"],
            Self::InTurn => &["✓ carried out in turn", "✓ in turn"],
        }
    }
}

/// What a play shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The anomaly occurred, with the values that show it.
    Occurs(String),
    /// It was prevented.
    Prevented(How),
    /// The play proves nothing, for this reason.
    Unknown(String),
}

/// Judges a play of a script.
#[must_use]
pub fn judge(script: &Script, play: &Play) -> Judgement {
    if let Some(why) = &play.failure {
        return Judgement::Unknown(why.clone());
    }
    if let Some(clues) = script.shows.iter().find(|clues| clues.iter().all(|clue| is_so(clue, play))) {
        let values: Vec<String> = clues.iter().map(|clue| value(clue, script, play)).collect();
        return Judgement::Occurs(values.join(", "));
    }
    // what was read, and did not show it, was so before anything was refused
    let is_read = |clues: &Vec<Clue>| clues.iter().any(|clue| is_contradicted(clue, play));
    let by_refusal = !script.shows.iter().all(is_read);
    let refused = |at: bool| by_refusal && play.endings.contains(&Ending::Refused { at_commit: at });
    Judgement::Prevented(if refused(true) {
        How::RefusedAtCommit
    } else if refused(false) {
        How::RefusedAtWrite
    } else if play.events.iter().any(|event| event.what == Happened::Waits) {
        How::Blocked
    } else if play.events.iter().any(|event| matches!(event.what, Happened::Replied(Reply::Rows(_)))) {
        How::OldVersion
    } else {
        How::InTurn
    })
}

fn is_so(clue: &Clue, play: &Play) -> bool {
    match clue {
        Clue::Commits(session) => play.endings.get(*session) == Some(&Ending::Committed),
        // what was never read proves nothing
        Clue::Read { label, rows } => play.read.get(label).is_some_and(|read| rows.are(read)),
        Clue::Final { table, rows } => play.last.get(*table).is_some_and(|last| rows.are(last)),
    }
}

/// Whether rows were read, and are not so.
fn is_contradicted(clue: &Clue, play: &Play) -> bool {
    matches!(clue, Clue::Read { label, .. } if play.read.contains_key(label)) && !is_so(clue, play)
}

/// What was found where a clue is so.
fn value(clue: &Clue, script: &Script, play: &Play) -> String {
    let all = |rows: Option<&Vec<Vec<String>>>| match rows {
        Some(rows) if !rows.is_empty() => in_brackets(rows),
        _ => "nothing".to_owned(),
    };
    match clue {
        Clue::Commits(session) => format!("{} committed", script.sessions[*session]),
        Clue::Read { label, rows } => {
            let reader = script.steps.iter().find(|step| step.label.as_ref() == Some(label));
            let reader = reader.map_or("", |step| script.sessions[step.session].as_str());
            match rows {
                Rows::Lack(row) => format!("{reader} did not read ({})", row.join(", ")),
                Rows::Are(_) | Rows::Have(_) => format!("{reader} read {}", all(play.read.get(label))),
            }
        }
        Clue::Final { table, .. } => {
            format!("{} is {} in the end", script.tables[*table].name, all(play.last.get(*table)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::play::Event;

    fn rows(text: &str) -> Vec<Vec<String>> {
        text.split(' ').map(|row| row.split(',').map(str::to_owned).collect()).collect()
    }

    fn lost_update() -> (Script, Play) {
        let script = crate::built_in().into_iter().find(|script| script.name == "P4").unwrap();
        let play = Play {
            events: Vec::new(),
            endings: vec![Ending::Committed; 2],
            read: BTreeMap::from([("one".to_owned(), rows("1,10")), ("other".to_owned(), rows("1,10"))]),
            last: vec![rows("1,11 2,20")],
            failure: None,
        };
        (script, play)
    }

    #[test]
    fn an_anomaly_occurs_only_if_all_of_it_is_seen() {
        let (script, play) = lost_update();
        let shown = "T1 committed, T2 committed, T1 read (1, 10), T2 read (1, 10)";
        assert_eq!(judge(&script, &play), Judgement::Occurs(shown.to_owned()));
        let read = |other: &str| {
            let what = Happened::Replied(Reply::Rows(rows(other)));
            let statement = "select".to_owned();
            let events = vec![Event { session: 1, statement, what, waited: false }];
            let mut play = Play { events, ..play.clone() };
            play.read.insert("other".to_owned(), rows(other));
            play
        };
        assert_eq!(judge(&script, &read("1,11")), Judgement::Prevented(How::OldVersion));
        let mut unread = play.clone();
        unread.read.remove("other");
        assert_eq!(judge(&script, &unread), Judgement::Prevented(How::InTurn));
    }

    #[test]
    fn the_last_thing_that_prevented_it_is_named() {
        let (script, play) = lost_update();
        let ended = |how: Ending| Play { endings: vec![Ending::Committed, how], ..play.clone() };
        let refused = |at_commit| judge(&script, &ended(Ending::Refused { at_commit }));
        assert_eq!(refused(true), Judgement::Prevented(How::RefusedAtCommit));
        assert_eq!(refused(false), Judgement::Prevented(How::RefusedAtWrite));
        let event = |what| Event { session: 1, statement: "update".to_owned(), what, waited: false };
        let waited = Play {
            events: vec![event(Happened::Waits), event(Happened::Replied(Reply::Done(Some(1))))],
            ..ended(Ending::RolledBack)
        };
        assert_eq!(judge(&script, &waited), Judgement::Prevented(How::Blocked));
    }

    #[test]
    fn a_play_that_failed_proves_nothing() {
        let (script, play) = lost_update();
        let failed = Play { failure: Some("T1: gone".to_owned()), ..play };
        assert_eq!(judge(&script, &failed), Judgement::Unknown("T1: gone".to_owned()));
    }
}
