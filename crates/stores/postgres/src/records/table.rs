//! The table `usertable`: created and loaded, read back.

use std::{iter, pin::pin};

use acidtest_workloads::{
    LoadProgress, Place,
    records::{Fields, Layout, RecordVisitor, key_name, tag_of},
};
use futures_util::TryStreamExt;
use tokio_postgres::{Client, Error, Row, binary_copy::BinaryCopyInWriter, types::Type};

use crate::{
    Value, quoted,
    value::{ValueList, version},
};

/// Records in one COPY: an error in one of them is only reported at its end.
const BATCH: u64 = 10_000;

/// Letters of each field that are read back, which are those that [`tag_of`] looks at.
const TAG: usize = 16;

/// The quoted name of the trial's table, with its schema.
pub(crate) fn table(place: &Place) -> String {
    format!("{}.{}", quoted(&place.namespace), quoted(&place.object("usertable")))
}

/// The result of `of` for each field's number, separated by commas.
pub(crate) fn each_field(layout: &Layout, of: impl Fn(u16) -> String) -> String {
    (0..layout.fields).map(of).collect::<Vec<_>>().join(", ")
}

/// The values of a statement or of a record, in the order of the columns: key, number, fields.
pub(crate) fn values<'a>(
    key: &'a str,
    number: Option<i64>,
    fields: Option<&'a Fields>,
) -> impl ExactSizeIterator<Item = Value<'a>> {
    let count = 1 + usize::from(number.is_some()) + fields.map_or(0, |fields| fields.iter().len());
    let fields = fields.into_iter().flat_map(Fields::iter).map(Value::Text);
    ValueList::new(iter::once(Value::Text(key)).chain(number.map(Value::Number)).chain(fields), count)
}

/// Creates the table and loads its records, in one transaction.
///
/// That lets COPY write them frozen, so that nobody has to mark them as committed later. Keys do not ascend as
/// records are loaded, so an index made over all of them at the end is faster than one that grows with them.
pub(crate) async fn load(
    client: &Client,
    table: &str,
    layout: &Layout,
    loaded: &LoadProgress,
) -> Result<(), Error> {
    let fields = each_field(layout, |field| format!("field{field} text NOT NULL"));
    let create = format!(
        "BEGIN; CREATE TABLE {table} (key text COLLATE \"C\" NOT NULL, version bigint NOT NULL, {fields})"
    );
    client.batch_execute(&create).await?;
    let mut first = 0;
    while first < layout.records {
        let end = layout.records.min(first + BATCH);
        loaded.add(copy(client, table, layout, first..end).await?);
        first = end;
    }
    client.batch_execute(&format!("ALTER TABLE {table} ADD PRIMARY KEY (key); COMMIT")).await?;
    // so that the planner knows the table's size
    client.batch_execute(&format!("VACUUM (ANALYZE) {table}")).await
}

async fn copy(
    client: &Client,
    table: &str,
    layout: &Layout,
    numbers: impl Iterator<Item = u64>,
) -> Result<u64, Error> {
    let sink = client.copy_in(&format!("COPY {table} FROM STDIN WITH (FORMAT binary, FREEZE)")).await?;
    let fields = iter::repeat_n(Type::TEXT, usize::from(layout.fields));
    let types: Vec<_> = [Type::TEXT, Type::INT8].into_iter().chain(fields).collect();
    let mut writer = pin!(BinaryCopyInWriter::new(sink, &types));
    let mut fields = Fields::default();
    for number in numbers {
        layout.fill(number, &mut fields);
        writer.as_mut().write_raw(values(&key_name(number), Some(0), Some(&fields))).await?;
    }
    writer.finish().await
}

/// Passes every record to `each` as it streams in.
pub(crate) async fn state(
    client: &Client,
    table: &str,
    layout: &Layout,
    each: &mut RecordVisitor<'_>,
) -> Result<(), Error> {
    let tags = each_field(layout, |field| format!("left(field{field}, {TAG})"));
    let sql = format!("SELECT key, version, {tags} FROM {table}");
    let mut rows = pin!(client.query_raw(&sql, iter::empty::<Value<'_>>()).await?);
    while let Some(row) = rows.try_next().await? {
        let version = version(&row, 1);
        let tag = version.and_then(|_| tag_of(texts(&row, 2)));
        // a value that is no text cannot be a record's key, and counts as an empty one
        each(row.try_get(0).unwrap_or_default(), version.unwrap_or_default(), tag);
    }
    Ok(())
}

/// The texts in the columns from `first` on. One that cannot be read counts as empty, which no field of a record
/// is.
fn texts(row: &Row, first: usize) -> impl Iterator<Item = &[u8]> {
    let text = |column| row.try_get(column).map_or(&[][..], str::as_bytes);
    (first..row.len()).map(text)
}
