//! A store that does nothing, so that the time to drive it is the cost of the bench itself.

use std::{collections::BTreeMap, time::Duration};

use acidtest_engine::{Completion, Fault};
use acidtest_model::{Durability, EffectiveSettings, Lock, StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, LoadProgress, Medium, Owner, Place, Store, TableSize,
    inventory::{self, Capture, InventoryStore, Release, Stock, StockRow, Withdrawal},
    join::{self, Ext, JoinAnswer, JoinStore, TableOrder},
    logs::{self, EntryVisitor, LogsStore, Rows, Sink},
    parcels::{self, Found, Inserted, Loading, Parcel, ParcelsStore, Scan, ScanVisitor, StoredScan},
    queue::{self, AckAnswer, Depth, Message, QueueStore, ReceivedMessage},
    records::{self, Action, Answer, Fields, Layout, RecordVisitor, RecordsStore, Request, Requirements},
    transactions::{self, Promise, Step, TransactionsStore},
};

/// A store that acknowledges every operation at once and keeps nothing. Its answers have the size of real ones,
/// except a join's, which is empty. Its audits are void.
#[derive(Clone, Copy, Debug, Default)]
pub struct Null;

fn nothing<'a>() -> Task<'a, Result<(), StoreError>> {
    Box::pin(async { Ok(()) })
}

impl Store for Null {
    fn effective(&self) -> Task<'_, Result<EffectiveSettings, StoreError>> {
        Box::pin(async {
            Ok(EffectiveSettings {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                durability: Durability::None.into(),
                because: "nothing is kept at all".to_owned(),
                settings: BTreeMap::new(),
                tls: None,
            })
        })
    }

    fn owner<'a>(&'a self, _: &'a str) -> Task<'a, Result<Owner, StoreError>> {
        Box::pin(async { Ok(Owner::Nobody) })
    }

    fn create<'a>(&'a self, _: &'a str, _: &'a str) -> Task<'a, Result<(), StoreError>> {
        nothing()
    }

    fn remove<'a>(&'a self, _: &'a str) -> Task<'a, Result<(), StoreError>> {
        nothing()
    }

    fn inventory(&self) -> Option<&dyn InventoryStore> {
        Some(self)
    }

    fn records(&self) -> Option<&dyn RecordsStore> {
        Some(self)
    }

    fn join(&self) -> Option<&dyn JoinStore> {
        Some(self)
    }

    fn queue(&self) -> Option<&dyn QueueStore> {
        Some(self)
    }

    fn logs(&self) -> Option<&dyn LogsStore> {
        Some(self)
    }

    fn parcels(&self) -> Option<&dyn ParcelsStore> {
        Some(self)
    }

    fn transactions(&self) -> Option<&dyn TransactionsStore> {
        Some(self)
    }
}

impl TransactionsStore for Null {
    fn load<'a>(
        &'a self,
        _: &'a Place,
        _: &'a transactions::Layout,
        _: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        nothing()
    }

    fn client(
        &self,
        _: &Place,
        _: &transactions::Requirements,
        scenario: transactions::Scenario,
    ) -> ClientTask {
        transactions::task(Self, scenario)
    }

    fn promise<'a>(&'a self, _: &'a transactions::Requirements) -> Task<'a, Result<Promise, StoreError>> {
        Box::pin(async { Ok(Promise::documented("null", "", "")) })
    }

    fn state<'a>(
        &'a self,
        _: &'a Place,
        _: &'a transactions::Layout,
        _: &'a mut transactions::State,
    ) -> Task<'a, Result<(), StoreError>> {
        nothing()
    }

    fn unload<'a>(&'a self, _: &'a Place) -> Task<'a, Result<(), StoreError>> {
        nothing()
    }
}

impl transactions::Connector for Null {
    type Connection = Self;

    async fn connect(&self) -> Result<Self, String> {
        Ok(Self)
    }
}

impl transactions::Operations for Null {
    async fn transaction(&mut self, steps: &[Step], answers: &mut transactions::Answers) -> Attempt {
        for step in steps {
            match step {
                // as many as a list has on average
                Step::ReadList { .. } => answers.list(1..=32),
                Step::ReadRegister { .. } => answers.register(Some(1)),
                Step::Total => answers.total(0),
                Step::Append { .. } | Step::WriteRegister { .. } | Step::Transfer { .. } => answers.done(),
            }
        }
        Attempt::Ok
    }
}

impl ParcelsStore for Null {
    fn load<'a>(
        &'a self,
        _: &'a Place,
        _: &'a parcels::Requirements,
        _: &'a Loading,
        _: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        nothing()
    }

    fn client(&self, _: &Place, _: &parcels::Requirements, scenario: parcels::Scenario) -> ClientTask {
        parcels::task(Self, scenario)
    }

    fn state<'a>(&'a self, _: &'a Place, _: &'a mut ScanVisitor<'_>) -> Task<'a, Result<(), StoreError>> {
        nothing()
    }

    fn size<'a>(&'a self, _: &'a Place) -> Task<'a, Result<TableSize, StoreError>> {
        let source = "nothing is kept at all".to_owned();
        let size = TableSize { rows: 0, data_bytes: None, index_bytes: None, medium: Medium::Memory, source };
        Box::pin(async { Ok(size) })
    }

    fn unload<'a>(&'a self, _: &'a Place) -> Task<'a, Result<(), StoreError>> {
        nothing()
    }
}

impl parcels::Connector for Null {
    type Connection = Self;

    async fn connect(&self) -> Result<Self, String> {
        Ok(Self)
    }
}

/// A row whose texts are of the right lengths.
fn null_scan() -> StoredScan {
    StoredScan::new(Some(1), Some(1), true, [b"00000000000", b"ACC", b"0000000000", b"00000"])
}

impl parcels::Operations for Null {
    async fn insert(&mut self, scans: &[Scan], inserted: &mut Inserted) -> Attempt {
        for _ in scans {
            inserted.took(1, 1);
        }
        Attempt::Ok
    }

    async fn by_hash(&mut self, _: &Parcel, found: &mut Found) -> Attempt {
        for _ in 0..parcels::MOST {
            found.take(null_scan());
        }
        Attempt::Ok
    }

    async fn by_id(&mut self, _: u64, found: &mut Found) -> Attempt {
        found.take(null_scan());
        Attempt::Ok
    }
}

impl InventoryStore for Null {
    fn load<'a>(&'a self, _: &'a Place, _: Lock, _: &'a Stock) -> Task<'a, Result<(), StoreError>> {
        nothing()
    }

    fn client(&self, _: &Place, _: Lock, scenario: inventory::Scenario) -> ClientTask {
        inventory::task(Self, scenario)
    }

    fn stock<'a>(&'a self, _: &'a Place) -> Task<'a, Result<Vec<StockRow>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn unload<'a>(&'a self, _: &'a Place) -> Task<'a, Result<(), StoreError>> {
        nothing()
    }
}

impl inventory::Connector for Null {
    type Connection = Self;

    async fn connect(&self) -> Result<Self, String> {
        Ok(Self)
    }
}

impl inventory::Operations for Null {
    async fn capture(&mut self, capture: &Capture, taken: &mut Vec<Withdrawal>) -> Attempt {
        taken.clear();
        taken.push(capture.withdrawal(1, capture.units));
        Attempt::Ok
    }

    async fn release(&mut self, _: &Release) -> Attempt {
        Attempt::Ok
    }
}

impl RecordsStore for Null {
    fn load<'a>(
        &'a self,
        _: &'a Place,
        _: &'a Layout,
        _: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        nothing()
    }

    fn client(&self, _: &Place, wanted: &Requirements, scenario: records::Scenario) -> ClientTask {
        let mut fields = Fields::default();
        wanted.layout.fill(0, &mut fields);
        records::task(NullRecords { fields }, scenario)
    }

    fn state<'a>(
        &'a self,
        _: &'a Place,
        _: &'a Layout,
        _: &'a mut RecordVisitor<'_>,
    ) -> Task<'a, Result<(), StoreError>> {
        nothing()
    }

    fn unload<'a>(&'a self, _: &'a Place) -> Task<'a, Result<(), StoreError>> {
        nothing()
    }
}

/// Answers every read with the same record, and every scan with as many copies of it as are asked for.
#[derive(Clone)]
struct NullRecords {
    fields: Fields,
}

impl records::Connector for NullRecords {
    type Connection = Self;

    async fn connect(&self) -> Result<Self, String> {
        Ok(self.clone())
    }
}

impl records::Operations for NullRecords {
    async fn single(&mut self, request: &Request, answer: &mut Answer) -> Attempt {
        let found = match request.action {
            Action::Read | Action::Modify => 1,
            Action::Scan => request.length,
            Action::Update | Action::Insert => 0,
        };
        for _ in 0..found {
            answer.record(0, self.fields.iter().map(str::as_bytes));
        }
        Attempt::Ok
    }

    async fn several(&mut self, requests: &[Request], answers: &mut [Answer]) -> Attempt {
        for (request, answer) in requests.iter().zip(answers) {
            self.single(request, answer).await;
        }
        Attempt::Ok
    }
}

impl JoinStore for Null {
    fn load<'a>(
        &'a self,
        _: &'a Place,
        _: &'a Layout,
        _: &'a [Ext],
        _: &'a LoadProgress,
    ) -> Task<'a, Result<(), StoreError>> {
        nothing()
    }

    fn explain<'a>(&'a self, _: &'a Place, _: TableOrder, _: u8) -> Task<'a, Result<String, StoreError>> {
        Box::pin(async { Ok("nothing is done".to_owned()) })
    }

    fn first<'a>(
        &'a self,
        _: &'a Place,
        _: TableOrder,
        _: u8,
        begin: &'a mut (dyn FnMut() + 'a),
    ) -> Task<'a, Result<(), StoreError>> {
        begin();
        nothing()
    }

    fn client(&self, _: &Place, _: u8, scenario: join::Scenario) -> ClientTask {
        join::task(Self, scenario)
    }

    fn unload<'a>(&'a self, _: &'a Place) -> Task<'a, Result<(), StoreError>> {
        nothing()
    }
}

impl join::Connector for Null {
    type Connection = Self;

    async fn connect(&self) -> Result<Self, String> {
        Ok(Self)
    }
}

impl join::Operations for Null {
    async fn join(&mut self, _: TableOrder, _: &mut JoinAnswer) -> Attempt {
        Attempt::Ok
    }
}

impl queue::QueueAdapter for Null {
    type Connector = NullQueue;

    fn connector(&self, _: &Place, wanted: &queue::Requirements) -> NullQueue {
        NullQueue { message: Message::loaded(0, wanted.message_bytes), stopped: false }
    }

    fn declare<'a>(&'a self, _: &'a Place, _: &'a queue::Requirements) -> Task<'a, Result<(), StoreError>> {
        nothing()
    }

    fn depth<'a>(&'a self, _: &'a Place, _: &'a queue::Requirements) -> Task<'a, Result<Depth, StoreError>> {
        Box::pin(async { Ok(Depth::default()) })
    }

    fn unload<'a>(&'a self, _: &'a Place) -> Task<'a, Result<(), StoreError>> {
        nothing()
    }

    fn keeps_order(&self, _: &queue::Requirements) -> bool {
        false
    }
}

/// A connection to a queue that delivers the same message again and again, flagged as redelivered.
#[derive(Clone, Debug)]
pub struct NullQueue {
    message: Message,
    stopped: bool,
}

impl queue::Connector for NullQueue {
    type Publisher = NullPublisher;
    type Subscriber = Self;

    async fn publisher(&self) -> Result<NullPublisher, String> {
        Ok(NullPublisher::default())
    }

    async fn subscriber(&self) -> Result<Self, String> {
        Ok(self.clone())
    }
}

/// A producer's connection that confirms every message as soon as it is asked for confirmations.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullPublisher {
    sent: u64,
    ended: u64,
}

impl queue::Publisher for NullPublisher {
    async fn send(&mut self, _: &Message) -> Result<(), Fault> {
        self.sent += 1;
        Ok(())
    }

    async fn settle(&mut self, ended: &mut Vec<Completion>) -> Result<(), Fault> {
        ended.extend((self.ended..self.sent).map(|number| Completion { number, attempt: Attempt::Ok }));
        self.ended = self.sent;
        Ok(())
    }
}

impl queue::Subscriber for NullQueue {
    async fn take(&mut self, _: Duration, received: &mut ReceivedMessage) -> Attempt {
        if self.stopped {
            return Attempt::Refused;
        }
        received.body.clone_from(&self.message.body);
        received.redelivered = Some(true);
        Attempt::Ok
    }

    async fn settle(&mut self) -> Result<AckAnswer, Attempt> {
        Ok(AckAnswer::Read)
    }

    async fn stop(&mut self) -> Result<(), Fault> {
        self.stopped = true;
        Ok(())
    }
}

impl LogsStore for Null {
    fn sink(&self, _: &Place) -> Option<Sink> {
        None
    }

    fn rows(&self, _: &Place) -> Rows {
        Rows::own(None, String::new())
    }

    fn client(&self, _: &Place, scenario: logs::Scenario) -> Option<ClientTask> {
        Some(logs::task(Self, scenario))
    }

    fn entries<'a>(&'a self, _: &'a Rows, _: &'a mut EntryVisitor<'_>) -> Task<'a, Result<(), StoreError>> {
        nothing()
    }

    fn unload<'a>(&'a self, _: &'a Rows) -> Task<'a, Result<(), StoreError>> {
        nothing()
    }
}

impl logs::Connector for Null {
    type Connection = Self;

    async fn connect(&self) -> Result<Self, String> {
        Ok(Self)
    }
}

impl logs::Operations for Null {
    async fn send(&mut self, _: &logs::Request) -> Attempt {
        Attempt::Ok
    }
}
