//! Helpers for the trials of every workload: a space and a procedure of the same name, and the procedure's
//! latches.

use acidtest_engine::Attempt;
use acidtest_model::StoreError;
use acidtest_workloads::Place;

use crate::{
    iproto::{Connection, Encoder, Error, Reader},
    prefix,
    server::ConnectOptions,
};

/// Seconds for which a latch is kept for a holder that has fallen silent.
pub(crate) const LEASE: f64 = 10.0;

/// Seconds to wait for a latch that another client holds, before the wait counts as a conflict.
pub(crate) const PATIENCE: f64 = 5.0;

/// The name of a trial's space and of its procedure.
pub(crate) fn name(place: &Place, object: &str) -> String {
    format!("{}{}", prefix(&place.namespace), place.object(object))
}

/// The procedure and space of a trial, in the form in which they are created.
pub(crate) struct Plan<'a> {
    /// The procedure's code, in Lua.
    pub(crate) procedure: &'a str,
    /// Name and type of each of the space's fields.
    pub(crate) format: &'a [(&'a str, &'a str)],
    /// How many of the fields, from the first on, form the primary key.
    pub(crate) key: usize,
    /// Name and fields of a secondary index, if there is one.
    pub(crate) second: Option<(&'a str, &'a [&'a str])>,
}

/// Creates a trial's space and procedure.
pub(crate) async fn lay_out(connection: &mut Connection, name: &str, plan: &Plan<'_>) -> Result<(), Error> {
    let arguments = |args: &mut Encoder| {
        args.array(if plan.second.is_some() { 7 } else { 5 });
        args.str(name).str(plan.procedure).str(include_str!("lua/latches.lua"));
        args.array(length(plan.format));
        for (field, kind) in plan.format {
            args.array(2).str(field).str(kind);
        }
        let key = &plan.format[..plan.key];
        args.array(length(key));
        for (field, _) in key {
            args.str(field);
        }
        if let Some((index, fields)) = plan.second {
            args.str(index).array(length(fields));
            for field in fields {
                args.str(field);
            }
        }
    };
    connection.eval(include_str!("lua/lay_out.lua"), arguments).await.map(drop)
}

/// Removes a trial's space and procedure.
pub(crate) async fn clear_away(server: &ConnectOptions, doing: &str, name: &str) -> Result<(), StoreError> {
    let name = |args: &mut Encoder| {
        args.array(1).str(name);
    };
    server.run(doing, include_str!("lua/clear_away.lua"), name, |_| Ok(())).await
}

/// The number by which requests name a trial's space; `None` if there is no such space.
pub(crate) async fn space_of(connection: &mut Connection, name: &str) -> Result<Option<u32>, Error> {
    let name = |args: &mut Encoder| {
        args.array(1).str(name);
    };
    let mut values = connection.eval(include_str!("lua/space.lua"), name).await?;
    values.tuple(1)?;
    if values.take_nil() { Ok(None) } else { part(&mut values).map(Some) }
}

/// Opens a client's connection, and looks up the number of its trial's space.
pub(crate) async fn connect(server: &ConnectOptions, name: &str) -> Result<(Connection, u32), String> {
    let words = |error: Error| error.to_string();
    let mut connection = server.connect().await.map_err(words)?;
    let space = space_of(&mut connection, name).await.map_err(words)?;
    let space = space.ok_or_else(|| format!("the server no longer has the space {name:?}"))?;
    Ok((connection, space))
}

/// The length of a slice that is far shorter than the protocol's longest array.
pub(crate) fn length<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}

/// Reads an unsigned integer of a narrower type, and fails if it does not fit.
pub(crate) fn part<T: TryFrom<u64>>(values: &mut Reader<'_>) -> Result<T, Error> {
    let value = values.u64()?;
    T::try_from(value).map_err(|_| Error::Protocol(format!("{value} is out of range")))
}

/// Reads a procedure's answer: whether it did as asked, or lost against another client, which is a conflict.
pub(crate) fn read_done(values: &mut Reader<'_>) -> Result<Attempt, Error> {
    values.tuple(1)?;
    Ok(if values.bool()? { Attempt::Ok } else { Attempt::Conflict })
}

/// The wanted result, or the outcome that ended the attempt without it.
pub(crate) type Step<T> = Result<T, Attempt>;
