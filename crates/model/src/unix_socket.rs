//! How the addresses of each store name a Unix socket: as its own clients have it.

use crate::address::decoded;

const POSTGRES: [&str; 2] = ["postgres", "postgresql"];
const MYSQL: [&str; 2] = ["mysql", "mariadb"];
/// As redis-py and redis-rs write them.
const REDIS: [&str; 2] = ["redis+unix", "unix"];
/// As others do, with options of their own.
const OTHERS_OF_REDIS: [&str; 2] = ["redis+socket", "redis-socket"];

const REDIS_EXAMPLE: &str = "redis+unix://:password@/run/redis.sock?db=0";

/// Whether addresses of this scheme name a Unix socket by it, as `redis+unix` does.
pub(crate) fn is_named_by(scheme: &str) -> bool {
    REDIS.contains(&scheme) || OTHERS_OF_REDIS.contains(&scheme)
}

/// Whether the path that an address of this scheme names is that of a folder, in which the port names the socket.
pub(crate) fn is_in_folder(scheme: &str) -> bool {
    POSTGRES.contains(&scheme)
}

/// How the socket is shown in an address: the scheme, the host, the path behind it, and the options.
pub(crate) fn written<'a>(scheme: &'a str, socket: &'a str, path: &'a str) -> Written<'a> {
    if is_in_folder(scheme) {
        return Written { scheme, host: "", path, options: vec![("host", socket)] };
    }
    if scheme == "redis" {
        let options = if path.is_empty() { Vec::new() } else { vec![("db", path)] };
        return Written { scheme: REDIS[0], host: "", path: &socket[1..], options };
    }
    Written { scheme, host: LOCAL, path, options: vec![("socket", socket)] }
}

/// The parts of an address that differ where it names a Unix socket.
pub(crate) struct Written<'a> {
    pub(crate) scheme: &'a str,
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    pub(crate) options: Vec<(&'static str, &'a str)>,
}

/// The host of an address that names a Unix socket.
const LOCAL: &str = "localhost";

/// An address that names a Unix socket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// The same address over TCP.
    pub(crate) over_tcp: String,
    /// The path of the socket.
    pub(crate) socket: String,
    /// A well-formed address.
    pub(crate) example: &'static str,
}

/// Why an address that names a Unix socket cannot be used, and a well-formed one.
type Refused = (String, &'static str);

impl Named {
    /// What this address, which has no `@` behind its host, says of a socket; `None` if it names a host.
    ///
    /// # Errors
    /// It names a socket, and something that has no meaning beside it.
    pub(crate) fn by(text: &str) -> Result<Option<Self>, Refused> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return match text.split_once(':') {
                Some((scheme, _)) if is_named_by(scheme) => {
                    Err(("two slashes follow its colon, and then the path".to_owned(), REDIS_EXAMPLE))
                }
                _ => Ok(None),
            };
        };
        // an engine of MySQL or MariaDB follows the name
        let product = scheme.split_once('+').map_or(scheme, |(product, _)| product);
        let parts = Parts::of(rest);
        if is_named_by(scheme) {
            return parts.of_redis(scheme).map(Some);
        }
        if POSTGRES.contains(&scheme) {
            return parts.of_postgres(scheme);
        }
        if MYSQL.contains(&product) {
            return parts.of_mysql(scheme);
        }
        Ok(None)
    }
}

/// An address without its scheme, in pieces that are not decoded.
struct Parts<'a> {
    /// With the `@` at its end, if there is one.
    login: &'a str,
    host: &'a str,
    port: Option<&'a str>,
    /// With the slash at its beginning.
    path: &'a str,
    options: Vec<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(rest: &'a str) -> Self {
        let (before, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = before.split_at(before.find('/').unwrap_or(before.len()));
        let (login, endpoint) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let (host, port) = match endpoint.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (endpoint, None),
        };
        Self {
            login,
            host,
            port,
            path,
            options: options.split('&').filter(|each| !each.is_empty()).collect(),
        }
    }

    /// Takes out the option of this name.
    fn option(&mut self, name: &str) -> Option<&'a str> {
        let is_it = |option: &&str| option.split_once('=').is_some_and(|(each, _)| each == name);
        let place = self.options.iter().position(is_it)?;
        self.options.remove(place).split_once('=').map(|(_, value)| value)
    }

    fn over_tcp(&self, scheme: &str, path: &str) -> String {
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        let options = self.options.join("&");
        let options = if options.is_empty() { options } else { format!("?{options}") };
        format!("{scheme}://{}{LOCAL}{port}{path}{options}", self.login)
    }

    /// As libpq has it: the option `host`, or the host, is the path of a folder.
    fn of_postgres(mut self, scheme: &str) -> Result<Option<Named>, Refused> {
        const EXAMPLE: &str = "postgres://user@/database?host=/run/postgresql";
        let is_option = self.options.iter().any(|option| option.strip_prefix("host=").is_some_and(is_path));
        let folder = if is_option {
            self.has_no_other_host(EXAMPLE)?;
            self.option("host")
        } else {
            Some(self.host).filter(|host| is_path(host))
        };
        let Some(folder) = folder else { return Ok(None) };
        self.port = self.option("port").or(self.port.filter(|port| !port.is_empty()));
        let over_tcp = self.over_tcp(scheme, self.path);
        Ok(Some(Named { over_tcp, socket: path(folder, EXAMPLE)?, example: EXAMPLE }))
    }

    /// As the clients of these do that know addresses: the option `socket` beside the host `localhost`.
    fn of_mysql(mut self, scheme: &str) -> Result<Option<Named>, Refused> {
        const EXAMPLE: &str = "mysql://user:password@localhost/database?socket=/run/mysqld/mysqld.sock";
        let Some(file) = self.option("socket") else { return Ok(None) };
        self.has_no_other_host(EXAMPLE)?;
        self.has_no_port(EXAMPLE)?;
        Ok(Some(Named {
            over_tcp: self.over_tcp(scheme, self.path),
            socket: path(file, EXAMPLE)?,
            example: EXAMPLE,
        }))
    }

    /// As redis-py and redis-rs have it: the path is that of the socket, and the option `db` a database's number.
    fn of_redis(mut self, scheme: &str) -> Result<Named, Refused> {
        if OTHERS_OF_REDIS.contains(&scheme) {
            return Err((format!("{scheme}:// is not known here"), REDIS_EXAMPLE));
        }
        self.has_no_other_host(REDIS_EXAMPLE)?;
        self.has_no_port(REDIS_EXAMPLE)?;
        let database = self.option("db").map(|number| format!("/{number}")).unwrap_or_default();
        if let Some(option) = self.options.first() {
            let name = option.split('=').next().unwrap_or_default();
            let why = format!(
                "unknown option \"{name}\" after ? (known is db); user and password stand before the @"
            );
            return Err((why, REDIS_EXAMPLE));
        }
        let over_tcp = self.over_tcp("redis", &database);
        Ok(Named { over_tcp, socket: path(self.path, REDIS_EXAMPLE)?, example: REDIS_EXAMPLE })
    }

    fn has_no_other_host(&self, example: &'static str) -> Result<(), Refused> {
        if self.host.is_empty() || self.host.eq_ignore_ascii_case(LOCAL) {
            return Ok(());
        }
        // not which: behind a forgotten @ it is a password
        Err(("it names a Unix socket, which is on this machine, and another host".to_owned(), example))
    }

    fn has_no_port(&self, example: &'static str) -> Result<(), Refused> {
        match self.port {
            None => Ok(()),
            Some(_) => Err(("it names a Unix socket, which has no port, and a port".to_owned(), example)),
        }
    }
}

/// Whether it begins with a slash, as it stands or percent-encoded.
fn is_path(text: &str) -> bool {
    text.starts_with('/') || text.get(..3).is_some_and(|first| first.eq_ignore_ascii_case("%2f"))
}

/// The path of a socket, as it was meant.
fn path(written: &str, example: &'static str) -> Result<String, Refused> {
    let path =
        decoded(written).filter(|path| path.len() > 1 && path.starts_with('/') && !path.contains('\0'));
    path.ok_or_else(|| {
        (format!("\"{written}\" is not the path of a Unix socket, which begins with a slash"), example)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{Address, Secret};

    #[test]
    fn a_unix_socket_is_named_as_each_store_s_clients_do() {
        for (text, scheme, socket, path, file) in [
            (
                "postgres:///db?host=/run/postgresql",
                "postgres",
                "/run/postgresql",
                "db",
                "/run/postgresql/.s.PGSQL.5432",
            ),
            (
                "postgres://ann@/db?sslmode=disable&host=/run/postgresql",
                "postgres",
                "/run/postgresql",
                "db",
                "/run/postgresql/.s.PGSQL.5432",
            ),
            (
                "postgresql://ann:secret@/db?host=%2Frun%2Fpostgresql&port=5433",
                "postgresql",
                "/run/postgresql",
                "db",
                "/run/postgresql/.s.PGSQL.5433",
            ),
            (
                "postgres://ann:secret@%2frun%2fpostgresql:5433/db",
                "postgres",
                "/run/postgresql",
                "db",
                "/run/postgresql/.s.PGSQL.5433",
            ),
            (
                "mysql+innodb://ann:secret@localhost/db?socket=/run/mysqld/mysqld.sock",
                "mysql+innodb",
                "/run/mysqld/mysqld.sock",
                "db",
                "/run/mysqld/mysqld.sock",
            ),
            ("mariadb://ann@/db?socket=/run/a%20b.sock", "mariadb", "/run/a b.sock", "db", "/run/a b.sock"),
            ("redis+unix:///run/redis.sock", "redis", "/run/redis.sock", "", "/run/redis.sock"),
            ("unix://:secret@/run/redis.sock?db=1", "redis", "/run/redis.sock", "1", "/run/redis.sock"),
        ] {
            let address = Address::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(
                (address.scheme.as_str(), address.socket.as_deref(), address.path.as_str()),
                (scheme, Some(socket), path),
                "{text}"
            );
            assert_eq!(address.socket_file(5432).as_deref(), Some(Path::new(file)), "{text}");
            assert_eq!(
                address.password.as_ref().map(Secret::reveal),
                text.contains("secret").then_some("secret"),
                "{text}"
            );
            assert!(address.is_on_this_machine() && address.tls.is_none(), "{text}");
            let shown = address.to_string();
            assert!(!shown.contains("secret"), "{shown}");
            let again = Address::parse(&shown).unwrap_or_else(|error| panic!("{shown}: {error}"));
            assert_eq!(again, Address { password: None, ..address }, "{text} is shown as {shown}");
        }
        // what an address is shown as is what its own clients take
        for text in [
            "postgres://ann@:5433/db?host=/run/postgresql",
            "mysql://ann@localhost/db?socket=/run/mysqld/mysqld.sock",
            "redis+unix:///run/redis.sock?db=1",
        ] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_has_no_meaning_beside_a_unix_socket_is_refused() {
        for (text, why) in [
            ("postgres://ann:secret@/db?host=/run/postgresql&sslmode=require", "TLS is for networks"),
            (
                "mysql://ann:secret@localhost/db?ssl-mode=REQUIRED&socket=/run/mysqld.sock",
                "TLS is for networks",
            ),
            ("mysql://ann:secret@db.example/db?socket=/run/mysqld.sock", "and another host"),
            ("mysql://ann:secret@localhost:3306/db?socket=/run/mysqld.sock", "has no port"),
            ("mysql://ann:secret@localhost/db?socket=mysqld.sock", "begins with a slash"),
            ("postgres://ann:secret@db.example/db?host=/run/postgresql", "and another host"),
            ("postgres://ann:secret@/db?host=/run/postgresql&timeout=1", "unknown option \"timeout\""),
            ("unix://ann@/run/redis.sock?password=secret", "stand before the @"),
            ("redis+unix://:secret@h/run/redis.sock", "and another host"),
            // the @ forgotten
            ("redis+unix://:secret/run/redis.sock", "and a port"),
            ("mysql://:secret/db?socket=/run/mysqld.sock", "and a port"),
            ("mysql://localhost:secret/db?socket=/run/mysqld.sock", "and a port"),
            ("redis+unix://", "begins with a slash"),
            ("unix:/run/redis.sock", "two slashes follow"),
            ("redis+unix::secret@/run/redis.sock", "two slashes follow"),
            ("redis-socket:///run/redis.sock", "write it as redis+unix://"),
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("write it as "), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
        for text in [
            "nats:///run/nats.sock",
            "amqp://guest@/?socket=/run/rabbit.sock",
            "postgres://h/db?host=db.example",
        ] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }
}
