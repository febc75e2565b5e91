//! The join in memory.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use acidtest_model::{StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, Loaded, Place,
    join::{self, Connector, Ext, JoinStore, Joined, Operations, Order, Scenario},
    records::{Fields, Layout, key_name},
};

use crate::{Bug, Faults, Memory, Plant, locked};

/// One trial's two tables.
#[derive(Debug)]
pub(crate) struct Tables {
    usertable: BTreeMap<String, Fields>,
    ext: BTreeMap<String, u8>,
    seeds: AtomicU64,
}

impl Tables {
    /// The keys of the join, looked up in one table for each row of the other.
    fn join(&self, order: Order, value: u8) -> Vec<&str> {
        let has_value = |key: &&String| self.ext.get(*key) == Some(&value);
        let keys: Vec<&String> = match order {
            Order::ExtFirst => {
                let ext = self.ext.keys().filter(has_value);
                ext.filter(|key| self.usertable.contains_key(*key)).collect()
            }
            Order::UsertableFirst => self.usertable.keys().filter(has_value).collect(),
        };
        keys.into_iter().map(String::as_str).collect()
    }
}

impl Memory {
    fn tables_of(&self, place: &Place) -> Result<Arc<Tables>, StoreError> {
        locked(&self.joins).get(&place.object("join")).cloned().ok_or_else(|| StoreError::Server {
            doing: "joining".to_owned(),
            address: "memory".to_owned(),
            cause: "nothing was loaded".to_owned(),
        })
    }
}

impl JoinStore for Memory {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        ext: &'a [Ext],
        loaded: &'a Loaded,
    ) -> Task<'a, Result<(), StoreError>> {
        let row = |number| {
            let mut fields = Fields::default();
            layout.fill(number, &mut fields);
            loaded.add(1);
            (key_name(number), fields)
        };
        let tables = Tables {
            usertable: (0..layout.records).map(row).collect(),
            ext: ext.iter().map(|row| (row.key.clone(), row.value)).collect(),
            seeds: AtomicU64::default(),
        };
        locked(&self.joins).insert(place.object("join"), Arc::new(tables));
        Box::pin(async { Ok(()) })
    }

    fn explain<'a>(&'a self, _: &'a Place, order: Order, _: u8) -> Task<'a, Result<String, StoreError>> {
        let plan = match order {
            Order::ExtFirst => "each row of ext with the value, looked up in usertable by its key",
            Order::UsertableFirst => "each row of usertable, looked up in ext by its key",
        };
        Box::pin(async { Ok(plan.to_owned()) })
    }

    fn first<'a>(
        &'a self,
        place: &'a Place,
        order: Order,
        value: u8,
        begin: &'a mut (dyn FnMut() + 'a),
    ) -> Task<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let tables = self.tables_of(place)?;
            begin();
            tables.join(order, value);
            Ok(())
        })
    }

    fn client(&self, place: &Place, value: u8, scenario: Scenario) -> ClientTask {
        let tables = self.tables_of(place).ok();
        join::task(MemoryConnector { tables, value, faults: self.faults }, scenario)
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        locked(&self.joins).remove(&place.object("join"));
        Box::pin(async { Ok(()) })
    }
}

struct MemoryConnector {
    tables: Option<Arc<Tables>>,
    value: u8,
    faults: Faults,
}

struct Connection {
    tables: Arc<Tables>,
    value: u8,
    plant: Plant,
}

impl Connector for MemoryConnector {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, String> {
        let tables = self.tables.clone().ok_or("nothing was loaded")?;
        let plant = Plant::new(self.faults, tables.seeds.fetch_add(1, Relaxed));
        Ok(Connection { tables, value: self.value, plant })
    }
}

impl Operations for Connection {
    async fn join(&mut self, order: Order, joined: &mut Joined) -> Attempt {
        let mut keys = self.tables.join(order, self.value);
        if self.plant.strikes(Bug::MissRow) {
            keys.pop();
        }
        if self.plant.strikes(Bug::DoubleRow)
            && let (Some(first), Some(last)) = (keys.first().copied(), keys.last_mut())
        {
            // as many rows as there must be
            *last = first;
        }
        if self.plant.is_unanswered() {
            std::future::pending::<()>().await;
        }
        for key in keys {
            joined.row(key);
        }
        Attempt::Ok
    }
}
