//! What is in the tables of a gateway, read by each database's own driver.

use std::time::Duration;

use acidtest_model::Address;
use mysql_async::prelude::Queryable;
use tokio_postgres::NoTls;

/// An entry as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    pub user: String,
    pub id: String,
    /// Microseconds since 1970.
    pub logged: i64,
    pub level: String,
    pub application: String,
    pub message: String,
    pub attributes: Option<String>,
}

type Columns = (String, String, i64, String, String, String, Option<String>);

fn row((user, id, logged, level, application, message, attributes): Columns) -> Row {
    Row { user, id, logged, level, application, message, attributes }
}

const BEFORE: &str = "SELECT user_name, id,";
const BEHIND: &str = "level, application, message, attributes";

/// All entries, in the order of their ids.
pub fn entries(address: &Address) -> Vec<Row> {
    let mut rows = acidtest_testbed::wait(async {
        match address.scheme.as_str() {
            "sqlite" => sqlite(address, &format!("{BEFORE} logged_at, {BEHIND} FROM acidtest_logs")),
            "postgres" => {
                let statement = format!(
                    "{BEFORE} (extract(epoch FROM logged_at) * 1000000)::bigint, level, application, message, \
                     attributes::text FROM acidtest_logs"
                );
                let text = |row: &tokio_postgres::Row| {
                    row_of(
                        row.get(0),
                        row.get(1),
                        row.get(2),
                        (row.get(3), row.get(4), row.get(5), row.get(6)),
                    )
                };
                postgres(address, &statement).await.iter().map(text).collect()
            }
            _ => {
                let mut conn = mysql(address).await;
                let rows: Vec<Columns> = conn
                    .query(format!(
                        "{BEFORE} timestampdiff(MICROSECOND, '1970-01-01', logged_at), {BEHIND} FROM acidtest_logs"
                    ))
                    .await
                    .unwrap();
                rows.into_iter().map(row).collect()
            }
        }
    });
    rows.sort();
    rows
}

/// How many entries there are.
pub fn count(address: &Address) -> usize {
    const COUNT: &str = "SELECT count(*) FROM acidtest_logs";
    let count: i64 = acidtest_testbed::wait(async {
        match address.scheme.as_str() {
            "sqlite" => {
                let connection = rusqlite::Connection::open(&address.path).unwrap();
                connection.busy_timeout(Duration::from_secs(30)).unwrap();
                connection.query_row(COUNT, [], |row| row.get(0)).unwrap()
            }
            "postgres" => postgres(address, COUNT).await[0].get(0),
            _ => mysql(address).await.query_first(COUNT).await.unwrap().unwrap(),
        }
    });
    usize::try_from(count).unwrap()
}

fn row_of(user: String, id: String, logged: i64, rest: (String, String, String, Option<String>)) -> Row {
    row((user, id, logged, rest.0, rest.1, rest.2, rest.3))
}

/// The entries that were refused: id, reason and what they say.
pub fn refused(address: &Address) -> Vec<(String, String, String)> {
    acidtest_testbed::wait(async {
        let columns = "SELECT id, reason, entry";
        match address.scheme.as_str() {
            "sqlite" => {
                let connection = rusqlite::Connection::open(&address.path).unwrap();
                let mut query = connection.prepare(&format!("{columns} FROM acidtest_logs_refused")).unwrap();
                let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
                rows.map(Result::unwrap).collect()
            }
            "postgres" => {
                let rows = postgres(address, &format!("{columns}::text FROM acidtest_logs_refused")).await;
                rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
            }
            _ => mysql(address).await.query(format!("{columns} FROM acidtest_logs_refused")).await.unwrap(),
        }
    })
}

/// Has the database do something.
pub fn order(address: &Address, statement: &str) {
    acidtest_testbed::wait(async {
        match address.scheme.as_str() {
            "sqlite" => rusqlite::Connection::open(&address.path).unwrap().execute_batch(statement).unwrap(),
            "postgres" => drop(postgres(address, statement).await),
            _ => mysql(address).await.query_drop(statement).await.unwrap(),
        }
    });
}

/// A figure of a MariaDB's or MySQL's status.
pub fn status(address: &Address, name: &str) -> u64 {
    acidtest_testbed::wait(async {
        let row: Option<(String, u64)> =
            mysql(address).await.query_first(format!("SHOW GLOBAL STATUS LIKE '{name}'")).await.unwrap();
        row.unwrap().1
    })
}

fn sqlite(address: &Address, statement: &str) -> Vec<Row> {
    let connection = rusqlite::Connection::open(&address.path).unwrap();
    connection.busy_timeout(Duration::from_secs(30)).unwrap();
    let mut query = connection.prepare(statement).unwrap();
    let rows = query.query_map([], |row| {
        let rest = (row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?);
        Ok(row_of(row.get(0)?, row.get(1)?, row.get(2)?, rest))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

async fn postgres(address: &Address, statement: &str) -> Vec<tokio_postgres::Row> {
    let (client, connection) = tokio_postgres::connect(&address.to_string(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client.query(statement, &[]).await.unwrap()
}

/// Connects once, to see whether a server answers.
pub async fn answers(address: &Address) -> Result<(), String> {
    if address.scheme == "postgres" {
        let connected = tokio_postgres::connect(&address.to_string(), NoTls).await;
        return connected.map(drop).map_err(|error| error.to_string());
    }
    connect(address).await.map(drop).map_err(|error| error.to_string())
}

async fn connect(address: &Address) -> Result<mysql_async::Conn, mysql_async::Error> {
    let options = mysql_async::OptsBuilder::default()
        .ip_or_hostname(&address.host)
        .tcp_port(address.port.unwrap_or(3306))
        .user(address.user.as_ref())
        .db_name((!address.path.is_empty()).then_some(&address.path))
        .prefer_socket(false);
    mysql_async::Conn::new(options).await
}

async fn mysql(address: &Address) -> mysql_async::Conn {
    connect(address).await.unwrap()
}
