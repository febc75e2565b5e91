//! Parses the values of `--store`: a store to start privately, or a server of the user's own.

use std::path::Path;

use acidtest_model::{Address, Hosting, Secret};
use acidtest_runner::{Failure, Target};

use crate::registry::{self, STORES};

/// Parses a name or an address. An address without a password takes it from `ACIDTEST_PASSWORD`.
pub(crate) fn parse(text: &str) -> Result<Target, Failure> {
    if let Some(store) = STORES.iter().find(|store| store.kind.name == text) {
        return Ok(Target { opener: store, address: None });
    }
    if let Some(failure) = registry::missing(text) {
        return Err(failure);
    }
    if text.contains('@') && !text.contains("://") {
        return Err(Failure::Usage(
            "an address with a login begins with its scheme, as in postgres://USER:PASSWORD@HOST/DATABASE; in a \
             password, write a comma as %2C, a slash as %2F, a ? as %3F, a # as %23, a % as %25 and an @ as %40"
                .to_owned(),
        ));
    }
    let Some((scheme, _)) = text.split_once(':') else { return Err(unknown_name(text)) };
    // what names a socket by its scheme is an address of the store with another one
    let of_socket = Address::is_of_sockets(scheme).then(|| address_of(text, false)).transpose()?;
    let scheme = of_socket.as_ref().map_or(scheme, |address| address.scheme.as_str());
    let store = STORES.iter().find(|store| store.kind.schemes.contains(&scheme));
    let Some(store) = store else { return Err(unknown_scheme(scheme)) };
    let address = address_of(text, store.kind.hosting == Hosting::Embedded)?;
    Ok(Target { opener: store, address: Some(address) })
}

/// Parses an address of whatever scheme. One without a password takes it from `ACIDTEST_PASSWORD`.
#[cfg(feature = "gateway")]
pub(crate) fn address(text: &str) -> Result<Address, Failure> {
    address_of(text, text.starts_with("sqlite:"))
}

fn address_of(text: &str, is_file: bool) -> Result<Address, Failure> {
    let mut address = Address::parse(text).map_err(|error| Failure::Usage(error.to_string()))?;
    // an address without an @ has no login, and a server that asks for no password may refuse one
    if address.password.is_none() && text.contains('@') {
        address.password = std::env::var("ACIDTEST_PASSWORD").ok().map(Secret::new);
    }
    // redis-cli takes that word for a password, which is not shown here
    if address.scheme == "redis" && address.user.is_some() && address.password.is_none() {
        return Err(Failure::Usage(
            "one word before the @ of an address of Redis is a user name, and no password is given: write a password as \
             redis://:PASSWORD@HOST, or redis://USER:PASSWORD@HOST, or set ACIDTEST_PASSWORD"
                .to_owned(),
        ));
    }
    // made absolute, so that files are found again from any folder
    let absolute = |path: &Path| {
        std::path::absolute(path)
            .map_err(|error| Failure::Usage(format!("cannot use {}: {error}", path.display())))
    };
    if is_file {
        let path = absolute(Path::new(&address.path))?;
        address.path = path.to_string_lossy().into_owned();
    }
    let mut tls = address.tls.clone();
    for file in tls.iter_mut().flat_map(|tls| tls.files_mut()) {
        *file = absolute(file)?;
    }
    Ok(Address { tls, ..address })
}

fn unknown_name(text: &str) -> Failure {
    if text.is_empty() {
        return Failure::Usage("a store has no name: the list has one comma too many".to_owned());
    }
    let known: Vec<&str> = registry::names().collect();
    Failure::Usage(format!(
        "unknown store \"{text}\"{}\n  known are {}, or an address such as postgres://user@host/database",
        acidtest_model::hint(text, known.iter().copied()),
        known.join(", ")
    ))
}

fn unknown_scheme(scheme: &str) -> Failure {
    let known: Vec<&str> = STORES.iter().flat_map(|store| store.kind.schemes.iter().copied()).collect();
    Failure::Usage(format!(
        "no store has addresses that begin with {scheme}:{}\n  known are {}",
        acidtest_model::hint(scheme, known.iter().copied()),
        known.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_word_before_the_at_of_redis_is_asked_about_and_not_shown() {
        for text in ["redis://secret@127.0.0.1:1", "rediss://secret@127.0.0.1:1/2"] {
            let error = parse(text).err().unwrap().to_string();
            assert!(error.contains("redis://:PASSWORD@HOST") && !error.contains("secret"), "{error}");
        }
        let target = parse("redis://:secret@127.0.0.1:1").ok().unwrap();
        let address = target.address.unwrap();
        assert_eq!((address.user, address.password), (None, Some(Secret::new("secret"))));
    }

    #[test]
    fn a_socket_of_redis_is_an_address_of_redis() {
        for text in ["redis+unix://:secret@/run/redis.sock", "unix://:secret@/run/redis.sock"] {
            let target = parse(text).ok().unwrap();
            assert_eq!(target.kind().name, "redis", "{text}");
            assert_eq!(target.address.unwrap().socket.as_deref(), Some("/run/redis.sock"), "{text}");
        }
        let error = parse("redis-socket:///run/redis.sock").err().unwrap().to_string();
        assert!(error.contains("write it as redis+unix://"), "{error}");
    }
}
