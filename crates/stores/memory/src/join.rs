//! The join workload in memory.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use acidtest_model::{StoreError, Task};
use acidtest_workloads::{
    Attempt, ClientTask, LoadProgress, Place,
    join::{self, Connector, Ext, JoinAnswer, JoinStore, Operations, Scenario, TableOrder},
    records::{Fields, Layout, key_name},
};

use crate::{
    Bug, Memory,
    faults::Plant,
    gone,
    world::{Link, World, locked},
};

/// One trial's two tables, which no operation changes.
#[derive(Debug)]
pub(crate) struct Tables {
    usertable: BTreeMap<String, Fields>,
    ext: BTreeMap<String, u8>,
    /// Acknowledged joins whose rows differed from the right ones.
    wrong: AtomicU64,
}

impl Tables {
    /// The keys of the join, looked up in one table for each row of the other.
    fn join(&self, order: TableOrder, value: u8) -> Vec<&str> {
        let has_value = |key: &&String| self.ext.get(*key) == Some(&value);
        let keys: Vec<&String> = match order {
            TableOrder::ExtFirst => {
                let ext = self.ext.keys().filter(has_value);
                ext.filter(|key| self.usertable.contains_key(*key)).collect()
            }
            TableOrder::UsertableFirst => self.usertable.keys().filter(has_value).collect(),
        };
        keys.into_iter().map(String::as_str).collect()
    }

    /// The number of violations that an audit of this trial must see.
    pub(crate) fn shown(&self) -> u64 {
        self.wrong.load(Relaxed)
    }
}

impl Memory {
    pub(crate) fn tables_of(&self, place: &Place) -> Result<Arc<Tables>, StoreError> {
        let tables = locked(&self.joins).get(&place.object("join")).cloned();
        tables.ok_or_else(|| gone("joining", "nothing was loaded"))
    }
}

impl JoinStore for Memory {
    fn load<'a>(
        &'a self,
        place: &'a Place,
        layout: &'a Layout,
        ext: &'a [Ext],
        loaded: &'a LoadProgress,
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
            wrong: AtomicU64::default(),
        };
        locked(&self.joins).insert(place.object("join"), Arc::new(tables));
        Box::pin(async { Ok(()) })
    }

    fn explain<'a>(&'a self, _: &'a Place, order: TableOrder, _: u8) -> Task<'a, Result<String, StoreError>> {
        let plan = match order {
            TableOrder::ExtFirst => "each row of ext with the value, looked up in usertable by its key",
            TableOrder::UsertableFirst => "each row of usertable, looked up in ext by its key",
        };
        Box::pin(async { Ok(plan.to_owned()) })
    }

    fn first<'a>(
        &'a self,
        place: &'a Place,
        order: TableOrder,
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
        join::task(MemoryConnector { tables, value, world: Arc::clone(&self.world) }, scenario)
    }

    fn unload<'a>(&'a self, place: &'a Place) -> Task<'a, Result<(), StoreError>> {
        locked(&self.joins).remove(&place.object("join"));
        Box::pin(async { Ok(()) })
    }
}

struct MemoryConnector {
    tables: Option<Arc<Tables>>,
    value: u8,
    world: Arc<World>,
}

struct Connection {
    link: Link,
    tables: Arc<Tables>,
    value: u8,
    plant: Plant,
}

impl Connector for MemoryConnector {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, String> {
        let tables = self.tables.clone().ok_or("nothing was loaded")?;
        let plant = || Plant::new(&self.world, self.world.faults);
        Ok(Connection { link: Link::open(plant())?, tables, value: self.value, plant: plant() })
    }
}

impl Operations for Connection {
    async fn join(&mut self, order: TableOrder, joined: &mut JoinAnswer) -> Attempt {
        if let Err(attempt) = self.link.send().await {
            return attempt;
        }
        let right = self.tables.join(order, self.value);
        let mut keys = right.clone();
        if self.plant.strikes(Bug::MissRow) {
            keys.pop();
        }
        if self.plant.strikes(Bug::DoubleRow)
            && let (Some(first), Some(last)) = (keys.first().copied(), keys.last_mut())
        {
            // keeps the number of rows right, so that only a check of the keys can notice
            *last = first;
        }
        if self.plant.is_unanswered() {
            std::future::pending::<()>().await;
        }
        let attempt = self.link.answer_attempt(Attempt::Ok).await;
        self.link.note(|| format!("{order:?}: {} rows, {attempt:?}", keys.len()));
        if attempt == Attempt::Ok {
            self.tables.wrong.fetch_add(u64::from(keys != right), Relaxed);
            for key in keys {
                joined.row(key);
            }
        }
        attempt
    }
}
