//! An answer that is on its way: packet by packet, what it says.

use mysql_common::{
    constants::{CapabilityFlags, MariadbCapabilities, StatusFlags},
    io::ParseBuf,
    packets::{
        CommonOkPacket, OkPacket, OkPacketDeserializer, OkPacketKind, OldEofPacket, ResultSetTerminator,
        StmtPacket,
    },
    proto::MyDeserialize,
};

use super::{
    answer::{Column, Field, Found, RowPlace},
    packet::SPLIT,
};

/// What a request asks for, by which its answer is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// A prepared statement is run.
    Run(usize),
    /// A statement is run as text.
    Query,
    Prepare,
}

/// What client and server have agreed on at the login.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreed {
    pub(super) capabilities: CapabilityFlags,
    pub(super) mariadb: MariadbCapabilities,
}

impl Agreed {
    /// Whether a result's end is an OK, and no packet ends the description of columns.
    fn ends_by_ok(self) -> bool {
        self.capabilities.contains(CapabilityFlags::CLIENT_DEPRECATE_EOF)
    }

    /// Whether a result says if its columns are described.
    fn may_leave_out_columns(self) -> bool {
        self.mariadb.contains(MariadbCapabilities::MARIADB_CLIENT_CACHE_METADATA)
    }
}

#[derive(Debug, Default)]
pub(super) struct PartialAnswer {
    pub(super) is_begun: bool,
    expected: Expected,
    /// Its first row among all that have arrived.
    pub(super) first_row: usize,
    /// Whether it has rows, or would have them if there were any.
    pub(super) is_table: bool,
    pub(super) count: u64,
    pub(super) last_insert_id: Option<u64>,
    pub(super) statement: Option<StmtPacket>,
    /// The columns of the statement, or of the last result: those of an earlier one, until they are described anew.
    pub(super) columns: Vec<Column>,
}

/// What the next packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expected {
    /// The first of an answer, or of a further result.
    #[default]
    Head,
    /// One of so many descriptions of parameters.
    Parameter(usize),
    /// The end of the parameters' description.
    ParametersEnd,
    /// One of so many descriptions of columns.
    Column(usize),
    /// The end of the columns' description.
    ColumnsEnd,
    /// A row, or the result's end.
    Row,
}

impl PartialAnswer {
    /// Takes the next packet, which is no error, and whose payload begins at `start` among the bytes that have arrived.
    /// Returns whether the answer is complete.
    ///
    /// # Errors
    /// In words: it has no place there.
    pub(super) fn take(
        &mut self,
        payload: &[u8],
        start: usize,
        request: RequestKind,
        agreed: Agreed,
        found: &mut Found,
    ) -> Result<bool, String> {
        if !self.is_begun {
            self.is_begun = true;
            self.first_row = found.rows.len();
        }
        let is_prepared = request == RequestKind::Prepare;
        match self.expected {
            Expected::Head if is_prepared => {
                let statement = parse::<StmtPacket>(payload, ())
                    .ok_or("the server's answer is not that of a statement")?;
                let parameters = usize::from(statement.num_params());
                self.statement = Some(statement);
                Ok(match parameters {
                    0 => self.parameters_described(),
                    _ => self.expect(Expected::Parameter(parameters)),
                })
            }
            Expected::Head => self.head(payload, agreed),
            Expected::Parameter(left) => Ok(match left {
                0 | 1 if agreed.ends_by_ok() => self.parameters_described(),
                0 | 1 => self.expect(Expected::ParametersEnd),
                _ => self.expect(Expected::Parameter(left - 1)),
            }),
            Expected::ParametersEnd => {
                ok::<OldEofPacket>(payload, agreed)?;
                Ok(self.parameters_described())
            }
            Expected::Column(left) => {
                self.columns.push(Column::read(payload).ok_or("the server described an invalid column")?);
                Ok(match left {
                    0 | 1 if agreed.ends_by_ok() => self.columns_described(is_prepared),
                    0 | 1 => self.expect(Expected::ColumnsEnd),
                    _ => self.expect(Expected::Column(left - 1)),
                })
            }
            Expected::ColumnsEnd => {
                ok::<OldEofPacket>(payload, agreed)?;
                Ok(self.columns_described(is_prepared))
            }
            Expected::Row if is_end(payload, agreed) => {
                let status = if agreed.ends_by_ok() {
                    ok::<ResultSetTerminator>(payload, agreed)?.status_flags()
                } else {
                    ok::<OldEofPacket>(payload, agreed)?.status_flags()
                };
                Ok(self.result_ended(status))
            }
            Expected::Row => {
                let first = found.fields.len();
                let fields = match request {
                    RequestKind::Run(_) => Field::find(payload, start, &self.columns, &mut found.fields),
                    _ => Field::find_texts(payload, start, self.columns.len(), &mut found.fields),
                };
                fields.ok_or("the server sent an invalid row")?;
                found.rows.push(RowPlace { first, columns: self.columns.len() });
                Ok(false)
            }
        }
    }

    /// Takes the first packet of a result.
    fn head(&mut self, payload: &[u8], agreed: Agreed) -> Result<bool, String> {
        match payload.first() {
            Some(&first::OK) => {
                let ok = ok::<CommonOkPacket>(payload, agreed)?;
                self.count = ok.affected_rows();
                self.last_insert_id = ok.last_insert_id();
                Ok(self.result_ended(ok.status_flags()))
            }
            Some(&first::FILE) => Err("the server asks for a file".to_owned()),
            _ => {
                let (columns, are_described) =
                    columns(payload, agreed).ok_or("the server's answer is not a result")?;
                self.is_table = true;
                if are_described {
                    self.columns.clear();
                    return Ok(self.expect(Expected::Column(columns)));
                }
                if columns != self.columns.len() {
                    return Err("the server leaves out columns that are not known".to_owned());
                }
                Ok(self.expect(Expected::Row))
            }
        }
    }

    /// The answer is not complete: this is to come.
    fn expect(&mut self, expected: Expected) -> bool {
        self.expected = expected;
        false
    }

    /// All parameters of a statement are described, if it has any.
    fn parameters_described(&mut self) -> bool {
        match self.statement.as_ref().map_or(0, StmtPacket::num_columns) {
            0 => true,
            columns => self.expect(Expected::Column(columns.into())),
        }
    }

    /// All columns of a statement that is prepared, or of a result, are described.
    fn columns_described(&mut self, is_prepared: bool) -> bool {
        is_prepared || self.expect(Expected::Row)
    }

    fn result_ended(&mut self, status: StatusFlags) -> bool {
        !status.contains(StatusFlags::SERVER_MORE_RESULTS_EXISTS) || self.expect(Expected::Head)
    }
}

/// What the first packet of a result begins with, the one behind its rows, and an error.
mod first {
    pub(super) const OK: u8 = 0x00;
    pub(super) const FILE: u8 = 0xFB;
    pub(super) const END: u8 = 0xFE;
    pub(super) const ERROR: u8 = 0xFF;
}

/// Whether a packet is an error that the server reports: nothing else in an answer begins so.
pub(super) fn is_error(payload: &[u8]) -> bool {
    payload.first() == Some(&first::ERROR)
}

/// A packet behind the rows is shorter than this, where it is no OK: a row that begins alike is longer.
const OLD_END: usize = 9;

/// Whether a packet in the place of a row ends the result.
fn is_end(payload: &[u8], agreed: Agreed) -> bool {
    let longer = if agreed.ends_by_ok() { SPLIT } else { OLD_END };
    payload.first() == Some(&first::END) && payload.len() < longer
}

/// The number of a result's columns, and whether they are described.
fn columns(payload: &[u8], agreed: Agreed) -> Option<(usize, bool)> {
    let mut rest = ParseBuf(payload);
    let count = usize::try_from(rest.checked_eat_lenenc_int()?).ok().filter(|count| *count > 0)?;
    let are_described = !agreed.may_leave_out_columns() || rest.checked_eat_u8()? != 0;
    rest.is_empty().then_some((count, are_described))
}

fn parse<'a, T: MyDeserialize<'a>>(payload: &'a [u8], context: T::Ctx) -> Option<T> {
    ParseBuf(payload).parse(context).ok()
}

fn ok<K: OkPacketKind>(payload: &[u8], agreed: Agreed) -> Result<OkPacket<'_>, String> {
    let ok = parse::<OkPacketDeserializer<'_, K>>(payload, agreed.capabilities);
    Ok(ok.ok_or("the end of the server's answer cannot be read")?.into_inner())
}
