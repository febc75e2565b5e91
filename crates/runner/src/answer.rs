//! Waiting for answers that are not timed, so that no run waits for ever.

use std::time::{Duration, Instant};

use acidtest_lab::Deployment;
use acidtest_model::{Address, Hosting, MemberId, Span, StoreError};
use acidtest_workloads::{Store, hosted::Hosted};

use crate::{Failure, Interrupt, OpenOptions, Target, failure::MORE_TIME};

/// Connections that a store opens one after the other when it is opened, at most, with all that is asked on them.
const OPENED: u32 = 4;

/// How long clients and faults wait for a server that is to come back within a trial, and how long a service may take to start.
pub(crate) const READY: Duration = Duration::from_mins(1);

/// How long a private server may take to answer outside of a trial, once it was started: RabbitMQ, which takes seven seconds on an
/// idle machine, took more than a minute where seven programs shared each core.
const FIRST: Duration = Duration::from_mins(3);

/// Time between two attempts at a server's first answer.
pub(crate) const AGAIN: Duration = Duration::from_millis(30);

/// How long an untimed answer may take.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Waits for an answer of a store that is not timed, but at most this long.
///
/// # Errors
/// The answer's own, or that none came in time while `doing` this.
pub async fn within<T>(
    most: Duration,
    doing: &str,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::time::timeout(most, answer).await.unwrap_or_else(|_| {
        Err(StoreError::Server {
            doing: doing.to_owned(),
            address: "the store".to_owned(),
            cause: format!("no answer within {} s", most.as_secs()),
        })
    })
}

/// Opens a store; an error if nobody answers in time.
pub(crate) async fn open(
    target: &Target,
    address: &Address,
    options: OpenOptions<'_>,
) -> Result<Box<dyn Store>, StoreError> {
    let opened = async {
        if is_hosted(target, address) {
            return Ok(Box::new(Hosted::open(address, None).await?) as Box<dyn Store>);
        }
        target.opener.open(address, options).await
    };
    let time = address.connect_timeout * OPENED;
    let opened = tokio::time::timeout(time, opened).await;
    opened.unwrap_or_else(|_| {
        Err(StoreError::Unreachable {
            address: address.to_string(),
            cause: format!("something accepts connections there but does not answer within {}", Span(time)),
            remedy: format!(
                "check host and port, and that the server is not stopped or overloaded; {MORE_TIME}"
            ),
        })
    })
}

/// What comes of opening a store, unless the run is interrupted meanwhile.
///
/// # Errors
/// The store's, or the interruption.
pub(crate) async fn unless_interrupted<T>(
    interrupt: &Interrupt,
    opening: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, Failure> {
    tokio::select! {
        opened = opening => Ok(opened?),
        () = interrupt.until_set() => Err(Failure::Store("interrupted while it was opened".to_owned())),
    }
}

/// Whether the address is that of a host, and the store an embedded one.
pub(crate) fn is_hosted(target: &Target, address: &Address) -> bool {
    target.kind().hosting == Hosting::Embedded && !address.host.is_empty()
}

/// Whether somebody takes connections there.
pub(crate) async fn takes_connections(address: &Address) -> bool {
    let opened = tokio::net::TcpStream::connect((address.host.as_str(), address.port.unwrap_or_default()));
    matches!(tokio::time::timeout(address.connect_timeout, opened).await, Ok(Ok(_)))
}

/// Waits for the first answer of a private server, and opens the store on it.
///
/// # Errors
/// A server of the deployment ended, this one does not answer, or the run was interrupted.
pub async fn first_answer(
    deployment: &mut Deployment,
    member: MemberId,
    target: &Target,
    address: &Address,
    options: OpenOptions<'_>,
    interrupt: &Interrupt,
) -> Result<Box<dyn Store>, Failure> {
    let begun = Instant::now();
    loop {
        deployment.check()?;
        match Box::pin(unless_interrupted(interrupt, open(target, address, options))).await {
            Ok(store) => return Ok(store),
            Err(interrupted) if interrupt.is_set() => return Err(interrupted),
            Err(error) if begun.elapsed() > FIRST => {
                let log = deployment.member(member).map_or_else(Vec::new, |member| member.log_tail(10));
                return Err(Failure::Store(unanswered(&error.to_string(), &log)));
            }
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// What is said of a private server that runs and does not answer. It is not the user's to start.
fn unanswered(error: &str, log: &[String]) -> String {
    let said: Vec<&str> = error.lines().filter(|line| !line.contains("remedy: start the server")).collect();
    format!(
        "{}\n  the private server has not answered for {} s: if other programs keep the machine busy, run again without \
         them\n  its log ends:\n  {}",
        said.join("\n"),
        FIRST.as_secs(),
        log.join("\n  ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_server_that_does_not_answer_is_nothing_for_the_user_to_start() {
        let error = StoreError::Unreachable {
            address: "amqp://guest@127.0.0.1:5".to_owned(),
            cause: "Connection refused".to_owned(),
            remedy: "start the server, or check host and port".to_owned(),
        };
        assert_eq!(
            unanswered(&error.to_string(), &["Starting broker".to_owned(), "node: acidtest".to_owned()]),
            "cannot reach amqp://guest@127.0.0.1:5: Connection refused\n  \
             the private server has not answered for 180 s: if other programs keep the machine busy, run again without them\n  \
             its log ends:\n  Starting broker\n  node: acidtest"
        );
        // whatever else the error advises is of use
        assert!(
            unanswered("no answer\n  remedy: raise --connect-timeout", &[]).contains("--connect-timeout")
        );
    }

    #[test]
    fn an_interrupt_ends_the_opening_of_a_store() {
        let interrupt = Interrupt::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let opened = async { Ok(1) };
        assert_eq!(runtime.block_on(unless_interrupted(&interrupt, opened)).unwrap(), 1);
        interrupt.set();
        let never = std::future::pending::<Result<(), StoreError>>();
        let said = runtime.block_on(unless_interrupted(&interrupt, never)).unwrap_err().to_string();
        assert!(said.contains("interrupted"), "{said}");
    }
}
