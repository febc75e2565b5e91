//! The operations on parcels over a host.

use std::time::Duration;

use acidtest_engine::{Attempt, ClientTask};
use acidtest_model::{StoreError, Task};
use serde::{Deserialize, Serialize};

use super::{HostLine, HostWay, Hosted, Purpose, Served, not_here};
use crate::{
    LoadProgress, Place, TableSize,
    parcels::{
        Connector, Found, Inserted, Loading, Operations, Parcel, ParcelsStore, Requirements, Scan,
        ScanVisitor, Scenario, StoredScan, task,
    },
};

/// An operation as it is sent to the host.
#[derive(Serialize, Deserialize)]
enum Sent {
    /// Scans, each as its kind and number and its parcel, which determine it.
    Insert(Vec<Scan>),
    ByHash(u64),
    ById(u64),
}

/// How an operation ended, what was inserted and what was found, and how long it waited for locks.
type Answered = (Attempt, Inserted, Vec<StoredScan>, Duration);

/// Serves one client of a host, with a connection that the connector opens. To be called in the store's crate, as
/// [`task`](crate::parcels::task).
pub fn serve<C: Connector + Send + 'static>(connector: C) -> Served {
    Box::new(move |mut line| {
        Box::pin(async move {
            let Some(mut connection) = line.opened(connector.connect().await) else { return };
            let (mut inserted, mut found) = (Inserted::default(), Found::default());
            while let Some(sent) = line.request::<Sent>() {
                inserted.clear();
                found.clear();
                let attempt = match sent {
                    Sent::Insert(scans) => connection.insert(&scans, &mut inserted).await,
                    Sent::ByHash(parcel) => connection.by_hash(&Parcel::of(parcel), &mut found).await,
                    Sent::ById(id) => connection.by_id(id, &mut found).await,
                };
                if !line.answer(&(attempt, &inserted, found.each(), connection.lock_wait())) {
                    break;
                }
            }
        })
    })
}

struct HostedParcels {
    line: HostLine,
    lock_wait: Duration,
}

impl HostedParcels {
    /// Asks the host, which answers how the operation ended, what was inserted and what was found.
    async fn ask(&mut self, sent: &Sent, inserted: &mut Inserted, found: &mut Found) -> Attempt {
        match self.line.ask::<_, Answered>(sent).await {
            Ok((attempt, was_inserted, was_found, lock_wait)) => {
                self.lock_wait += lock_wait;
                *inserted = was_inserted;
                for scan in was_found {
                    found.take(scan);
                }
                attempt
            }
            Err(fault) => Attempt::Unknown(fault),
        }
    }
}

impl Operations for HostedParcels {
    async fn insert(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Attempt {
        self.ask(&Sent::Insert(scans.to_vec()), inserted, &mut Found::default()).await
    }

    async fn by_hash(&mut self, parcel: &Parcel, found: &mut Found) -> Attempt {
        self.ask(&Sent::ByHash(parcel.number), &mut Inserted::default(), found).await
    }

    async fn by_id(&mut self, id: u64, found: &mut Found) -> Attempt {
        self.ask(&Sent::ById(id), &mut Inserted::default(), found).await
    }

    fn lock_wait(&mut self) -> Duration {
        std::mem::take(&mut self.lock_wait)
    }
}

struct HostedConnector(HostWay);

impl Connector for HostedConnector {
    type Connection = HostedParcels;

    async fn connect(&self) -> Result<HostedParcels, String> {
        Ok(HostedParcels { line: self.0.open().await?, lock_wait: Duration::ZERO })
    }
}

impl ParcelsStore for Hosted {
    fn load<'a>(
        &'a self,
        _: &'a Place,
        _: &'a Requirements,
        _: &'a Loading,
        _: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("loading the scans") })
    }

    fn client(&self, _: &Place, _: &Requirements, scenario: Scenario) -> ClientTask {
        task(HostedConnector(self.way(Purpose::Client)), scenario)
    }

    fn state<'a>(&'a self, _: &'a Place, _: &'a mut ScanVisitor<'_>) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("reading the final scans") })
    }

    fn size<'a>(&'a self, _: &'a Place) -> Task<'a, Result<TableSize, StoreError>> {
        Box::pin(async { not_here("measuring the table") })
    }

    fn unload<'a>(&'a self, _: &'a Place) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async { not_here("removing the scans") })
    }
}
