//! The operations on records over a host.

use std::time::Duration;

use acidtest_engine::{Attempt, ClientTask};
use acidtest_model::{StoreError, Task};
use serde::{Deserialize, Serialize};

use super::{HostLine, HostWay, Hosted, Purpose, Served, not_here};
use crate::{
    LoadProgress, Place,
    records::{
        Action, Answer, Connector, Fields, Layout, Operations, RecordVisitor, RecordsStore, Request,
        Requirements, Scenario, task,
    },
};

/// A request without its fields, which their tag determines.
#[derive(Debug, Serialize, Deserialize)]
struct Sent {
    action: Action,
    number: u64,
    key: String,
    length: u32,
    tag: u64,
}

impl Sent {
    fn of(request: &Request) -> Self {
        let Request { action, number, key, length, fields } = request;
        Self { action: *action, number: *number, key: key.clone(), length: *length, tag: fields.tag() }
    }

    fn request(self, layout: &Layout) -> Request {
        let Self { action, number, key, length, tag } = self;
        let mut fields = Fields::default();
        if matches!(action, Action::Update | Action::Insert | Action::Modify) {
            fields.fill(layout, tag);
        }
        Request { action, number, key, length, fields }
    }
}

/// How the operations ended, what they found, and how long they waited for locks.
type Answered = (Attempt, Vec<Answer>, Duration);

/// Serves one client of a host, with a connection that the connector opens. To be called in the store's crate, as
/// [`task`](crate::records::task).
pub fn serve<C: Connector + Send + 'static>(connector: C, layout: Layout) -> Served {
    Box::new(move |mut line| {
        Box::pin(async move {
            let Some(mut connection) = line.opened(connector.connect().await) else { return };
            let mut answers = Vec::new();
            while let Some(sent) = line.request::<Vec<Sent>>() {
                let requests: Vec<Request> = sent.into_iter().map(|sent| sent.request(&layout)).collect();
                answers.clear();
                answers.resize_with(requests.len(), Answer::default);
                let attempt = match (requests.as_slice(), answers.as_mut_slice()) {
                    ([request], [answer]) => connection.single(request, answer).await,
                    (requests, answers) => connection.several(requests, answers).await,
                };
                if !line.answer(&(attempt, &answers, connection.lock_wait())) {
                    break;
                }
            }
        })
    })
}

struct HostedRecords {
    line: HostLine,
    lock_wait: Duration,
}

impl HostedRecords {
    async fn ask(&mut self, requests: &[Request], answers: &mut [Answer]) -> Attempt {
        let sent: Vec<Sent> = requests.iter().map(Sent::of).collect();
        match self.line.ask::<_, Answered>(&sent).await {
            Ok((attempt, answered, lock_wait)) => {
                self.lock_wait += lock_wait;
                for (answer, answered) in answers.iter_mut().zip(answered) {
                    *answer = answered;
                }
                attempt
            }
            Err(fault) => Attempt::Unknown(fault),
        }
    }
}

impl Operations for HostedRecords {
    async fn single(&mut self, request: &Request, answer: &mut Answer) -> Attempt {
        self.ask(std::slice::from_ref(request), std::slice::from_mut(answer)).await
    }

    async fn several(&mut self, requests: &[Request], answers: &mut [Answer]) -> Attempt {
        self.ask(requests, answers).await
    }

    fn lock_wait(&mut self) -> Duration {
        std::mem::take(&mut self.lock_wait)
    }
}

struct HostedConnector(HostWay);

impl Connector for HostedConnector {
    type Connection = HostedRecords;

    async fn connect(&self) -> Result<HostedRecords, String> {
        Ok(HostedRecords { line: self.0.open().await?, lock_wait: Duration::ZERO })
    }
}

impl RecordsStore for Hosted {
    fn load<'a>(
        &'a self,
        _: &'a Place,
        _: &'a Layout,
        _: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("loading the records") })
    }

    fn client(&self, _: &Place, _: &Requirements, scenario: Scenario) -> ClientTask {
        task(HostedConnector(self.way(Purpose::Client)), scenario)
    }

    fn state<'a>(
        &'a self,
        _: &'a Place,
        _: &'a Layout,
        _: &'a mut RecordVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("reading the final records") })
    }

    fn unload<'a>(&'a self, _: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("removing the records") })
    }
}
