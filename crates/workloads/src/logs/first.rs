//! A first entry, sent before the clients come. It shows that a gateway that runs already lets them in, and that it stores
//! where the audit will look.

use std::time::{Duration, Instant};

use acidtest_model::StoreError;
use acidtest_transport::TlsError;

use super::{Id, LogQueue, LogsStore, Request, Rows, http::Gateway};

/// How it is waited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// How long the gateway may refuse the entry, and then how long it may take until it is stored.
    most: Duration,
    /// How long the table may not be readable.
    unread: Duration,
    /// The least time between two attempts.
    again: Duration,
}

pub(super) const PATIENCE: Patience = Patience {
    most: Duration::from_secs(30),
    unread: Duration::from_secs(3),
    again: Duration::from_millis(200),
};

/// Sends an entry whose id has the prefix of these rows, and finds it among them. It stays there: a broker may hand it out
/// again, so that it is removed with those of the clients. Returns why it is not known whether it comes there, if it may
/// wait in the gateway's queue.
///
/// # Errors
/// The gateway does not take it, the table cannot be read, or the entry is stored elsewhere.
pub(super) async fn send_first(
    gateway: &Gateway,
    store: &dyn LogsStore,
    rows: &Rows,
    patience: Patience,
) -> Result<Option<String>, StoreError> {
    let mut request = Request::default();
    let ids = std::iter::once(Id { client: 0, sequence: 0 });
    request.fill(&rows.prefix, ids, jiff::Timestamp::now().as_microsecond(), 0);
    // where the table cannot be read, nothing is left in another
    is_stored(store, rows, patience).await?;
    let before = waiting(gateway).await;
    take(gateway, &request, patience).await?;
    let (taken, mut was_empty) = (Instant::now(), false);
    loop {
        // a broker is asked now and then only
        if taken.elapsed() >= patience.unread {
            let now = waiting(gateway).await;
            was_empty |= before.zip(now).is_some_and(|(then, now)| then.0 == now.0 && now.1 == 0);
        }
        let look = Instant::now();
        if is_stored(store, rows, patience).await? {
            return Ok(None);
        }
        if look.duration_since(taken) >= patience.most {
            return if was_empty { Err(elsewhere(gateway, rows)) } else { Ok(Some(doubt(rows, patience))) };
        }
        // each look reads the whole table
        tokio::time::sleep(patience.again.max(look.elapsed())).await;
    }
}

/// Whether there is an entry in these rows.
async fn is_stored(store: &dyn LogsStore, rows: &Rows, patience: Patience) -> Result<bool, StoreError> {
    let begun = Instant::now();
    loop {
        let mut is_stored = false;
        match store.entries(rows, &mut |_| is_stored = true).await {
            Ok(()) => return Ok(is_stored),
            Err(error) if begun.elapsed() >= patience.unread => return Err(with(error, WHERE)),
            Err(_) => tokio::time::sleep(patience.again).await,
        }
    }
}

const SENDING: &str = "sending a first entry to the gateway";
const WHERE: &str = "give with --store and --table where the gateway stores, as a user who may read it";

/// Has the gateway take the entry. It may be taken more than once where an answer is lost.
async fn take(gateway: &Gateway, request: &Request, patience: Patience) -> Result<(), StoreError> {
    let begun = Instant::now();
    loop {
        let answer = tokio::time::timeout(patience.most, gateway.post(request)).await;
        let (why, remedy, may_change) = match answer {
            Ok(Ok((201 | 202, _))) => return Ok(()),
            Ok(Ok((401 | 403, why))) => (
                why,
                "put the token of one of its users into ACIDTEST_TOKEN (acidtest gateway user add NAME)",
                false,
            ),
            // it is full, or what it needs is away
            Ok(Ok((429 | 503, why))) => (why, "wait until it accepts entries; its log says more", true),
            Ok(Ok((404 | 405, why))) => {
                (why, "give with --gateway the address at which `acidtest gateway` listens", false)
            }
            // so say servers, and others than ours, to whoever does not speak TLS
            Ok(Ok((400, why))) if why.to_ascii_lowercase().contains("https") => {
                (why, "write https:// in the address (--gateway)", false)
            }
            Ok(Ok((_, why))) => (why, "see what its log says: the entry is one as clients send them", false),
            Ok(Err(error)) => match TlsError::within(&error) {
                Some(TlsError { cause, remedy }) => {
                    return Err(with(gateway.failed(SENDING, cause), &remedy));
                }
                None => (error.to_string(), "see what its log says", true),
            },
            Err(_) => ("no answer".to_owned(), "see what its log says", true),
        };
        if !may_change || begun.elapsed() >= patience.most {
            return Err(with(gateway.failed(SENDING, why), remedy));
        }
        tokio::time::sleep(patience.again).await;
    }
}

/// Which start of which gateway answers, and how much waits there, if it says so. `RabbitMQ` does not show what collectors
/// hold.
async fn waiting(gateway: &Gateway) -> Option<(u64, u64)> {
    let (_, queue, state) = gateway.found().await.ok()?;
    (queue != LogQueue::RabbitMq).then_some((state.instance, state.waiting))
}

fn doubt(rows: &Rows, patience: Patience) -> String {
    format!(
        "the first entry is not in the table {} after {} s and may still wait in the gateway's queue: whether the gateway \
         stores there is unknown",
        rows.table,
        patience.most.as_secs()
    )
}

fn elsewhere(gateway: &Gateway, rows: &Rows) -> StoreError {
    let Rows { table, prefix, .. } = rows;
    let why = format!(
        "it was acknowledged, the gateway's queue is empty, and it is not in the table {table}; wherever it is, its id \
         begins with {prefix}"
    );
    with(gateway.failed("finding the first entry that was sent to the gateway", why), WHERE)
}

fn with(error: StoreError, remedy: &str) -> StoreError {
    match error {
        StoreError::Server { doing, address, cause } => {
            StoreError::Server { doing, address, cause: format!("{cause}\n  remedy: {remedy}") }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;
    use crate::logs::{Entry, double};

    /// A gateway that answers so, the last for ever, and says in its metrics that so many entries wait.
    fn gateway(answers: &'static [(u16, &'static str)], waiting: u64) -> Gateway {
        let metrics = format!(
            "acidtest_gateway_info{{architecture=\"queued\",queue=\"disk\",instance=\"1\"}} 1\n\
             acidtest_gateway_queue_entries {waiting}\nacidtest_gateway_entries_stored_total 0\n\
             acidtest_gateway_entries_acknowledged_total 1\nacidtest_gateway_entries_repeated_total 0\n"
        );
        let mut posted = 0;
        double::gateway(move |request| {
            if request.starts_with(b"GET") {
                return (200, metrics.clone());
            }
            posted += 1;
            let (status, body) = answers[usize::min(posted, answers.len()) - 1];
            (status, body.to_owned())
        })
    }

    /// What is said when the entry comes into the table at this look, never if that is 0, and the table cannot be read at so
    /// many looks before; and how often it was looked at.
    fn sent(
        answers: &'static [(u16, &'static str)],
        waiting: u64,
        (missing_for, comes_at): (u64, u64),
    ) -> (Result<Option<String>, String>, u64) {
        let store = double::Store::new(|look, rows: &Rows| {
            assert_eq!((&*rows.table, &*rows.prefix), ("ours", "RUN-first-"));
            if look <= missing_for {
                let (doing, address) = ("reading".to_owned(), "a".to_owned());
                return Err(StoreError::Server { doing, address, cause: "no table ours".to_owned() });
            }
            let entry = || Entry::new(&rows.prefix, Id { client: 0, sequence: 0 }, 0, 0);
            Ok((look == comes_at).then(entry).into_iter().collect())
        });
        let gateway = gateway(answers, waiting);
        let [most, unread, again] = [500, 200, 5].map(Duration::from_millis);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let rows = Rows::among_others("ours", "RUN-first-");
        let sent = send_first(&gateway, &store, &rows, Patience { most, unread, again });
        (runtime.block_on(sent).map_err(|error| error.to_string()), store.looks.load(SeqCst))
    }

    const FULL: (u16, &str) = (429, r#"{"title":"the queue","detail":"is full","accepted":0}"#);
    const AWAY: (u16, &str) = (503, r#"{"title":"the queue","detail":"is away"}"#);
    const TAKEN: (u16, &str) = (202, r#"{"accepted":1}"#);

    #[test]
    fn what_is_taken_late_and_stored_late_is_found() {
        assert_eq!(sent(&[FULL, AWAY, TAKEN], 0, (1, 4)), (Ok(None), 4));
    }

    #[test]
    fn what_may_wait_behind_others_is_not_waited_for() {
        let doubt = sent(&[TAKEN], 7, (0, 0)).0.unwrap().unwrap();
        assert!(doubt.contains("may still wait in the gateway's queue"), "{doubt}");
    }

    #[test]
    fn nothing_is_sent_where_the_table_cannot_be_read() {
        let missing = sent(&[(500, "it was sent")], 0, (u64::MAX, 0)).0.unwrap_err();
        assert!(missing.contains("no table ours") && missing.contains("--table"), "{missing}");
    }

    #[test]
    fn a_gateway_that_does_not_store_there_is_told_with_a_remedy() {
        let of = |answers| sent(answers, 0, (0, 0)).0.unwrap_err();
        let denied = of(&[(401, r#"{"title":"the token is invalid","detail":"nobody has it"}"#)]);
        assert!(denied.contains("HTTP 401: the token is invalid: nobody has it"), "{denied}");
        assert!(denied.contains("ACIDTEST_TOKEN"), "{denied}");
        let collector =
            of(&[(404, r#"{"title":"this is a collector","detail":"send entries to a gateway"}"#)]);
        assert!(collector.contains("HTTP 404: this is a collector"), "{collector}");
        assert!(collector.contains("--gateway") && !collector.contains("TOKEN"), "{collector}");
        assert!(of(&[FULL]).contains("HTTP 429: the queue: is full\n  remedy: wait"));
        assert!(of(&[AWAY]).contains("HTTP 503: the queue: is away\n  remedy: wait"));
        let elsewhere = of(&[TAKEN]);
        assert!(
            elsewhere.contains("it is not in the table ours") && elsewhere.contains("--store"),
            "{elsewhere}"
        );
        assert!(elsewhere.contains("its id begins with RUN-first-"), "{elsewhere}");
    }
}
