//! Checks that the documents agree with the stores: a store's `GUARANTEES.md` must say of each guarantee what its
//! `KIND` says in a few words. The tables over all stores are made from both. `GOLDEN=write cargo test -p acidtest
//! pages` makes those tables anew.

use std::{collections::BTreeSet, env, fs, path::PathBuf};

use acidtest_model::{Durability, Lock, Replication, StoreKind, Support};
use acidtest_results::{OPTIONS, PlanOption, distinct};
use acidtest_workloads::{
    Workload,
    queue::{Ack, Consume, Parameters, Queue, QueueKind},
};

use crate::registry::{Feature, STORES, left_out};

const WORKLOADS: [&str; 7] = ["inventory", "records", "join", "queue", "logs", "parcels", "transactions"];

/// First words of the rows that speak of something that `KIND` has too.
const KEYS: [&str; 8] =
    ["workload", "lock", "durability", "isolation", "transactions", "refresh", "tls", "replication"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The page of a store; the engines of a crate share it.
fn page(kind: &StoreKind) -> String {
    let name = if kind.program() == "mysql" { "mariadb" } else { kind.program() };
    format!("crates/stores/{name}/GUARANTEES.md")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn kinds() -> impl Iterator<Item = &'static StoreKind> {
    STORES.iter().map(|store| &store.kind)
}

/// The name of a store's engine, where it is one of several of the same server.
fn engine(kind: &StoreKind) -> &'static str {
    let default = if page(kind).contains("mariadb") { "innodb" } else { "" };
    kind.name.split_once('/').map_or(default, |(_, engine)| engine)
}

/// A row of a page: `lock soft, hard, MyISAM, Aria` is about two lock modes of two engines.
struct Row {
    key: String,
    /// The words of the row's first cell after `key`, in lower case.
    words: Vec<String>,
    text: String,
}

fn rows(page: &str) -> Vec<Row> {
    let text = read(page);
    let cells =
        text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    cells
        .map(|(label, text)| {
            let mut words = label.split([' ', ',']).filter(|word| !word.is_empty()).map(str::to_lowercase);
            Row { key: words.next().unwrap_or_default(), words: words.collect(), text: text.to_owned() }
        })
        .collect()
}

impl Row {
    fn is_about(&self, kind: &StoreKind, key: &str, name: &str) -> bool {
        let engines: BTreeSet<&str> = kinds().map(engine).filter(|engine| !engine.is_empty()).collect();
        let (engines, names): (Vec<&str>, Vec<&str>) =
            self.words.iter().map(String::as_str).partition(|word| engines.contains(word));
        self.key == key
            && (names.is_empty() || names.contains(&name))
            && (engines.is_empty() || engines.contains(&engine(kind)))
    }

    /// The text in bold at the beginning of the row's second cell, without the marks of code.
    fn bold(&self) -> Option<String> {
        let (bold, _) = self.text.strip_prefix("**")?.split_once("**")?;
        Some(bold.replace('`', ""))
    }
}

/// Everything that a store's `KIND` says it supports or does not.
fn said(kind: &StoreKind) -> Vec<(&'static str, &'static str, Support)> {
    let workloads = WORKLOADS.map(|name| ("workload", name, kind.workload(name)));
    let locks = Lock::ALL.map(|lock| ("lock", lock.name(), kind.lock(lock)));
    let durability =
        Durability::ALL.map(|durability| ("durability", durability.name(), kind.durability(durability)));
    let levels = kind.isolation.iter().map(|(level, support)| ("isolation", level.name(), *support));
    let rest =
        [("transactions", "", kind.transactions), ("refresh", "", kind.refresh), ("tls", "", kind.tls)];
    // a page needs no row to say that a write is found at once
    let rest = rest.into_iter().filter(|(key, _, support)| *key != "refresh" || support.is_yes());
    // nor one to say that acidtest starts one node
    let replication = kind.replication.iter().map(|(level, support)| ("replication", level.name(), *support));
    let guarantees = locks.into_iter().chain(durability).chain(levels).chain(rest).chain(replication);
    workloads.into_iter().chain(guarantees).collect()
}

#[test]
fn a_store_s_page_says_in_its_rows_what_the_store_says() {
    for kind in kinds() {
        let page = page(kind);
        let rows = rows(&page);
        for (key, name, support) in said(kind) {
            let about: Vec<&Row> = rows.iter().filter(|row| row.is_about(kind, key, name)).collect();
            let wanted = support.to_string();
            assert!(!about.is_empty(), "{page} has no row `{key} {name}` for {}: **{wanted}**", kind.name);
            for row in about {
                let bold = row.bold();
                assert_eq!(
                    bold.as_ref(),
                    Some(&wanted),
                    "{page}, `{key} {name}`: the left is what its row says in bold, the right what {} says",
                    kind.name
                );
            }
        }
    }
}

#[test]
fn a_store_s_page_has_no_row_of_what_no_store_says() {
    for page in kinds().map(page).collect::<BTreeSet<_>>() {
        let stores: Vec<&StoreKind> = kinds().filter(|kind| self::page(kind) == page).collect();
        for row in rows(&page).iter().filter(|row| KEYS.contains(&row.key.as_str())) {
            let mut all =
                stores.iter().flat_map(|kind| said(kind).into_iter().map(move |said| (*kind, said)));
            let is_said = all.any(|(kind, (key, name, _))| row.is_about(kind, key, name));
            assert!(is_said, "{page}: no store says anything of `{} {}`", row.key, row.words.join(", "));
        }
    }
}

/// A line of a Markdown table.
fn line<T: AsRef<str>>(cells: impl IntoIterator<Item = T>) -> String {
    let cells: Vec<String> = cells.into_iter().map(|cell| format!("| {} ", cell.as_ref())).collect();
    format!("{}|\n", cells.concat())
}

fn head(first: &str, rest: &[impl AsRef<str>]) -> String {
    let rule = vec!["---"; rest.len() + 1];
    line([first].into_iter().chain(rest.iter().map(AsRef::as_ref))) + &line(rule)
}

/// A table with one line for all stores of a page that have the same cells; a line without cells is left out.
fn table(header: &[impl AsRef<str>], of: impl Fn(&StoreKind) -> Vec<String>) -> String {
    let mut stores: Vec<(String, Vec<&str>, Vec<String>)> = Vec::new();
    for kind in kinds() {
        let (page, cells) = (page(kind), of(kind));
        match stores.iter_mut().find(|(other, _, same)| (other, same) == (&page, &cells)) {
            Some((_, names, _)) => names.push(kind.name),
            None => stores.push((page, vec![kind.name], cells)),
        }
    }
    let lines = stores.into_iter().filter(|(.., cells)| !cells.is_empty()).map(|(page, names, cells)| {
        let store = format!("[{}](../{page})", names.join(", "));
        line([store].into_iter().chain(cells))
    });
    [head("store", header)].into_iter().chain(lines).collect()
}

fn words(supports: impl IntoIterator<Item = Support>) -> Vec<String> {
    supports.into_iter().map(|support| support.to_string()).collect()
}

/// A store's support of the queue workload, with the rows of these names of its page.
fn of_queue(kind: &StoreKind, labels: &[&str]) -> Vec<String> {
    let support = kind.workload("queue");
    if !support.is_yes() {
        return Vec::new();
    }
    let text = read(&page(kind));
    let cell = |label: &&str| {
        let row =
            text.lines().find_map(|line| line.strip_prefix(&format!("| {label} | "))?.strip_suffix(" |"));
        row.unwrap_or_else(|| panic!("{} has no row `{label}`", page(kind))).to_owned()
    };
    [support.to_string()].into_iter().chain(labels.iter().map(cell)).collect()
}

/// The reason why a store refuses a queue of these parameters, if it does.
fn refusal(kind: &StoreKind, parameters: &Parameters) -> Option<&'static str> {
    let queue = Queue::new(parameters.clone()).unwrap();
    (kind.refuses)(&queue.spec().request(Lock::None))
}

fn plain() -> Parameters {
    Parameters::default()
}

#[test]
fn a_store_s_page_says_refused_of_what_its_queue_refuses() {
    for kind in kinds().filter(|kind| kind.workload("queue").is_yes()) {
        let page = page(kind);
        let rows = rows(&page);
        let acks = Ack::ALL.map(|ack| ("ack", ack.name(), Parameters { ack, ..plain() }));
        let consumes =
            Consume::ALL.map(|consume| ("consume", consume.name(), Parameters { consume, ..plain() }));
        for (key, name, parameters) in acks.into_iter().chain(consumes) {
            let row = rows.iter().find(|row| row.is_about(kind, key, name));
            let row = row.unwrap_or_else(|| panic!("{page} has no row `{key} {name}`"));
            let (says, does) = (row.text.starts_with("refused: "), refusal(kind, &parameters).is_some());
            assert_eq!(says, does, "{page}, `{key} {name}`: {} {:?}", kind.name, refusal(kind, &parameters));
        }
    }
}

/// A table of the queue's parameters with the stores that refuse them.
fn refused() -> String {
    let asked = [
        ("`ack none`", Parameters { ack: Ack::None, ..plain() }),
        ("`ack transaction`", Parameters { ack: Ack::Transaction, ..plain() }),
        ("`consume auto`", Parameters { consume: Consume::Auto, ..plain() }),
        ("`consume transaction`", Parameters { consume: Consume::Transaction, ..plain() }),
        ("`in_flight` above 1, `ack confirm`", Parameters { in_flight: 10, ..plain() }),
        ("`persistent false`", Parameters { persistent: false, ..plain() }),
        ("`queue classic`", Parameters { queue: QueueKind::Classic, ..plain() }),
        ("`queue quorum`", Parameters { queue: QueueKind::Quorum, ..plain() }),
        (
            "`queue quorum`, `persistent false`",
            Parameters { queue: QueueKind::Quorum, persistent: false, ..plain() },
        ),
        ("`replicas` above 1", Parameters { replicas: 3, ..plain() }),
        ("`deduplicate`", Parameters { deduplicate: true, ..plain() }),
    ];
    let stores: Vec<&StoreKind> =
        kinds().filter(|kind| kind.workload("queue").is_yes() && !kind.name.contains('/')).collect();
    let names: Vec<&str> = stores.iter().map(|kind| kind.name).collect();
    let mut reasons: Vec<&str> = Vec::new();
    let mut cell = |kind: &StoreKind, parameters: &Parameters| {
        let Some(why) = refusal(kind, parameters) else { return String::new() };
        if !reasons.contains(&why) {
            reasons.push(why);
        }
        let before = reasons.iter().take_while(|reason| **reason != why).count();
        format!("no ({})", before + 1)
    };
    let lines: Vec<String> = asked
        .into_iter()
        .map(|(label, parameters)| {
            let cells: Vec<String> = stores.iter().map(|kind| cell(kind, &parameters)).collect();
            line([label.to_owned()].into_iter().chain(cells))
        })
        .collect();
    let reasons: Vec<String> =
        (1..).zip(reasons).map(|(number, reason)| format!("{number}. {reason}\n")).collect();
    format!("{}{}\n{}", head("asked for", &names), lines.concat(), reasons.concat())
}

#[test]
fn tables_over_all_stores_say_what_the_stores_say() {
    let missing: Vec<String> = left_out().map(Feature::remedy).collect();
    assert!(missing.is_empty(), "a table over all stores needs all of them: {missing:?}");
    let locks = Lock::ALL.map(|lock| format!("lock {}", lock.name()));
    let levels = Durability::ALL.map(|durability| format!("durability {}", durability.name()));
    let clusters = Replication::ALL.into_iter().filter(|level| !level.is_none());
    let clusters: Vec<Replication> = clusters.collect();
    let of_cluster = |kind: &StoreKind| match kind.replication {
        [] => Vec::new(),
        _ => words(clusters.iter().map(|level| kind.replication(*level))),
    };
    let replication: Vec<String> =
        clusters.iter().map(|level| format!("replication {}", level.name())).collect();
    let of_replicas = |kind: &StoreKind| {
        kind.replica_reads.map_or_else(Vec::new, |reads| {
            let levels: Vec<&str> = reads.isolation.iter().map(|level| level.name()).collect();
            let strong = match reads.strong {
                Ok((level, setting)) => format!("{setting}; needs replication {level}"),
                Err(why) => format!("no: {why}"),
            };
            vec![format!("default, {}", levels.join(", ")), strong]
        })
    };
    let of_workload = |kind: &StoreKind| words(WORKLOADS.map(|name| kind.workload(name)));
    let of_rest = |kind: &StoreKind| {
        let levels = kind.isolation.iter().filter(|(_, support)| support.is_yes());
        let levels: Vec<&str> = levels.map(|(level, _)| level.name()).collect();
        let levels = if levels.is_empty() { "none to set".to_owned() } else { levels.join(", ") };
        vec![kind.transactions.to_string(), levels, kind.refresh.to_string(), kind.tls.to_string()]
    };
    let queues = ["a consumer that is lost", "order"];
    for (file, name, made) in [
        ("guarantees", "workloads", table(&WORKLOADS, of_workload)),
        ("guarantees", "locks", table(&locks, |kind| words(Lock::ALL.map(|lock| kind.lock(lock))))),
        (
            "guarantees",
            "durability levels",
            table(&levels, |kind| words(Durability::ALL.map(|durability| kind.durability(durability)))),
        ),
        (
            "guarantees",
            "transactions",
            table(
                &[
                    "transactions of several operations",
                    "isolation levels",
                    "refresh",
                    "TLS to a private server",
                ],
                of_rest,
            ),
        ),
        ("guarantees", "replication levels", table(&replication, of_cluster)),
        (
            "guarantees",
            "reads at replicas",
            table(&["isolation levels at a replica", "consistency strong"], of_replicas),
        ),
        ("queues", "queues", table(&["a queue is", queues[0], queues[1]], |kind| of_queue(kind, &queues))),
        ("queues", "refused", refused()),
    ] {
        holds(file, name, &made);
    }
}

/// Holds that this stands under its name in a page of `docs/`, as it is made.
fn holds(file: &str, name: &str, made: &str) {
    let path = format!("docs/{file}.md");
    let text = read(&path);
    let (begin, end) = (format!("<!-- {name}: made by crates/acidtest/src/pages.rs -->\n"), "<!-- end -->");
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{path} has no {begin}"));
    let (stands, after) = rest.split_once(end).unwrap_or_else(|| panic!("{path} has no end of {name}"));
    let made = format!("\n{made}\n");
    if env::var_os("GOLDEN").is_some_and(|value| value == "write") {
        fs::write(root().join(&path), format!("{before}{begin}{made}{end}{after}")).unwrap();
    } else {
        let differs = stands.lines().zip(made.lines()).find(|(stands, made)| stands != made);
        assert!(
            stands == made,
            "{path}: {name} stands as the first and is made as the second: {differs:#?}; \
             if the second is right, run the test with GOLDEN=write"
        );
    }
}

/// A text as it stands in a cell of a table.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('*', "\\*").replace('<', "&lt;")
}

#[test]
fn the_table_of_options_says_what_the_options_say() {
    let of = |option: &PlanOption| {
        let names = distinct([false, true].map(|searches| option.name(searches)));
        let names: Vec<String> = names.iter().map(|name| format!("`--{name}`")).collect();
        let key = option.table.map_or_else(String::new, |table| format!("`[{table}]` "));
        line([names.join("; of a search "), format!("{key}`{}`", option.key), escaped(&option.help(false))])
    };
    let lines: String = OPTIONS.iter().map(of).collect();
    holds("reference", "options", &format!("{}{lines}", head("option", &["key in a plan", "meaning"])));
}
