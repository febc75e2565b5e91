//! What an address says of TLS, as the clients of its store spell it.
//!
//! | store | asks for TLS | what is checked of the server's certificate | its issuers | the client's own |
//! | --- | --- | --- | --- | --- |
//! | PostgreSQL | `sslmode=…`, `channel_binding=require` | `require`: nothing; `verify-ca`: its issuer; `verify-full`: its name, too | `sslrootcert` | `sslcert`, `sslkey` |
//! | `MySQL`, `MariaDB` | `ssl-mode=…` | `REQUIRED`, `VERIFY_CA`, `VERIFY_IDENTITY`: the same | `ssl-ca` | `ssl-cert`, `ssl-key` |
//! | Redis | `rediss://` | its name, unless `sslmode` says less | `sslrootcert` | `sslcert`, `sslkey` |
//! | `RabbitMQ` | `amqps://` | its name, unless `sslmode` says less, or `verify=verify_none` | `cacertfile` | `certfile`, `keyfile` |
//! | NATS | `tls://` | its name, unless `sslmode` says less | `sslrootcert` | `sslcert`, `sslkey` |
//! | Elasticsearch | `https://` | its name, unless `sslmode` says less | `sslrootcert` | `sslcert`, `sslkey` |
//!
//! These are the words of libpq (PostgreSQL 15), of the clients of `MySQL` 8, of redis-cli's addresses, of RabbitMQ's URI
//! query parameters and of NATS' clients; libpq's names of files are understood for every store. Where no issuer is named,
//! those are trusted that the system trusts. As with libpq, `require` beside an issuer checks the issuer. What would go on
//! without TLS where the server has none (libpq's `prefer` and `allow`, MySQL's `PREFERRED`) is refused.

use std::{
    borrow::Cow,
    fmt,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is checked of a server's certificate, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CertificateCheck {
    /// Nothing: whoever answers is taken for the server.
    Nothing,
    /// Who has issued it, and that it is valid today; not whose it is.
    Issuer,
    /// The same, and that it is for the host in the address.
    Name,
}

/// What an address says of TLS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tls {
    /// What is checked of the server's certificate.
    pub check: CertificateCheck,
    /// A file of certificates (PEM) whose owners may issue the server's; none for those that the system trusts.
    pub issuers: Option<PathBuf>,
    /// The client's own certificate, for servers that ask for one.
    pub certificate: Option<OwnCertificate>,
    /// Whether the login must be bound to this very connection (`channel_binding=require` of PostgreSQL): whoever stands in
    /// between cannot log in with it. Otherwise it is where the server can.
    pub binds: bool,
}

/// The files (PEM) by which a client, or a server of acidtest's own, proves who it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnCertificate {
    /// Its certificate, and those between it and its issuer's.
    pub chain: PathBuf,
    /// Its private key, which is not encrypted.
    pub key: PathBuf,
}

impl Tls {
    /// This checked, by the issuers that the system trusts.
    #[must_use]
    pub fn checking(check: CertificateCheck) -> Self {
        Self { check, issuers: None, certificate: None, binds: false }
    }

    /// Everything checked, by these issuers.
    #[must_use]
    pub fn issued_by(issuers: impl Into<PathBuf>) -> Self {
        Self { issuers: Some(issuers.into()), ..Self::checking(CertificateCheck::Name) }
    }

    /// The files that it names.
    pub fn files_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let certificate = self.certificate.as_mut();
        let own = certificate.map(|OwnCertificate { chain, key }| [chain, key]);
        self.issuers.iter_mut().chain(own.into_iter().flatten())
    }
}

/// The TLS that was agreed on with a server, read back from a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NegotiatedTls {
    /// The protocol's version, such as `TLSv1.3`.
    pub version: String,
    /// The cipher suite, in the words of the library or the server that named it.
    pub cipher: String,
    /// What was checked of the server's certificate.
    pub checked: CertificateCheck,
    /// What the server says of its own side, where that is another connection: something in between, such as a pooler, ends
    /// this one there. None where it says the same, or is not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beyond: Option<String>,
}

impl NegotiatedTls {
    /// The same with what the server says of the connection on its side, if that is another one. Both are the server's words;
    /// nothing follows from those that are missing.
    #[must_use]
    pub fn beside(self, version: &str, cipher: &str) -> Self {
        let is_told = !version.is_empty() && version != "unknown";
        let is_this = version == self.version && suite(cipher) == suite(&self.cipher);
        let words = if version == "none" { "no TLS".to_owned() } else { format!("{version}, {cipher}") };
        Self { beyond: (is_told && !is_this).then_some(words), ..self }
    }
}

/// A cipher suite's name without what libraries spell in different ways: `TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384` is
/// `ECDHE-RSA-AES256-GCM-SHA384` in `OpenSSL`.
fn suite(name: &str) -> String {
    let name = name.replace("_WITH_", "_").replace(['_', '-'], "");
    let name = name.trim_start_matches("TLS13").trim_start_matches("TLS");
    // OpenSSL leaves the hash of this one out, but for TLS 1.3
    if name.ends_with("POLY1305SHA256") { name.trim_end_matches("SHA256") } else { name }.to_owned()
}

impl fmt::Display for NegotiatedTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checked = match self.checked {
            CertificateCheck::Nothing => "; the server's certificate was not checked",
            CertificateCheck::Issuer => "; the name in the server's certificate was not checked",
            CertificateCheck::Name => "",
        };
        write!(f, "{}, {}{checked}", self.version, self.cipher)?;
        match &self.beyond {
            None => Ok(()),
            Some(beyond) => write!(
                f,
                "; of its own side the server reports {beyond}: something in between, such as a pooler, terminates this \
                 TLS, and what is shown and measured here covers the way up to there"
            ),
        }
    }
}

/// What a word for the mode asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Off,
    /// TLS if the server has it.
    Perhaps,
    On(CertificateCheck),
}

/// The words of an option for the mode.
type Words = &'static [(&'static str, Mode)];

/// How the clients of a store spell TLS in an address.
struct Spelling {
    /// Schemes of addresses without TLS, or that say nothing of it.
    schemes: &'static [&'static str],
    /// The scheme that asks for TLS, with its TCP port where that differs; none if an option does.
    secure: Option<(&'static str, Option<u16>)>,
    /// The options for the mode; the first one is shown.
    modes: &'static [(&'static str, Words)],
    /// The options for the issuers, the client's certificate and its key.
    files: [&'static str; 3],
    /// The option that binds the login to the connection.
    binding: Option<&'static str>,
}

const LIBPQ: Words = &[
    ("disable", Mode::Off),
    ("allow", Mode::Perhaps),
    ("prefer", Mode::Perhaps),
    ("require", Mode::On(CertificateCheck::Nothing)),
    ("verify-ca", Mode::On(CertificateCheck::Issuer)),
    ("verify-full", Mode::On(CertificateCheck::Name)),
];

const MYSQL: Words = &[
    ("DISABLED", Mode::Off),
    ("PREFERRED", Mode::Perhaps),
    ("REQUIRED", Mode::On(CertificateCheck::Nothing)),
    ("VERIFY_CA", Mode::On(CertificateCheck::Issuer)),
    ("VERIFY_IDENTITY", Mode::On(CertificateCheck::Name)),
];

const ERLANG: Words = &[
    ("verify_none", Mode::On(CertificateCheck::Nothing)),
    ("verify_peer", Mode::On(CertificateCheck::Name)),
];

/// libpq's names of files.
const LIBPQ_FILES: [&str; 3] = ["sslrootcert", "sslcert", "sslkey"];

const SPELLINGS: [Spelling; 6] = [
    Spelling {
        schemes: &["postgres", "postgresql"],
        secure: None,
        modes: &[("sslmode", LIBPQ)],
        files: LIBPQ_FILES,
        binding: Some("channel_binding"),
    },
    // an engine of theirs follows the name
    Spelling {
        schemes: &["mysql", "mariadb"],
        secure: None,
        modes: &[("ssl-mode", MYSQL)],
        files: ["ssl-ca", "ssl-cert", "ssl-key"],
        binding: None,
    },
    Spelling {
        schemes: &["redis"],
        secure: Some(("rediss", None)),
        modes: &[("sslmode", LIBPQ)],
        files: LIBPQ_FILES,
        binding: None,
    },
    Spelling {
        schemes: &["amqp"],
        secure: Some(("amqps", Some(5671))),
        modes: &[("sslmode", LIBPQ), ("verify", ERLANG)],
        files: ["cacertfile", "certfile", "keyfile"],
        binding: None,
    },
    Spelling {
        schemes: &["nats"],
        secure: Some(("tls", None)),
        modes: &[("sslmode", LIBPQ)],
        files: LIBPQ_FILES,
        binding: None,
    },
    Spelling {
        schemes: &["http", "elasticsearch", "es"],
        secure: Some(("https", Some(443))),
        modes: &[("sslmode", LIBPQ)],
        files: LIBPQ_FILES,
        binding: None,
    },
];

impl Spelling {
    /// That of this scheme, and whether the scheme asks for TLS.
    fn of(scheme: &str) -> Option<(&'static Self, bool)> {
        let product = scheme.split_once('+').map_or(scheme, |(product, _)| product);
        SPELLINGS.iter().find_map(|spelling| {
            let is_secure = spelling.secure.is_some_and(|(secure, _)| secure == scheme);
            (is_secure || spelling.schemes.contains(&product)).then_some((spelling, is_secure))
        })
    }

    fn options(&self) -> Vec<&'static str> {
        let modes = self.modes.iter().map(|(name, _)| *name);
        let mut options: Vec<_> = modes.chain(self.files).collect();
        options.extend(LIBPQ_FILES.into_iter().filter(|name| !self.files.contains(name)));
        options.extend(self.binding);
        options
    }

    /// The place of a file's option among the three.
    fn file(&self, name: &str) -> Option<usize> {
        [self.files, LIBPQ_FILES].iter().find_map(|names| names.iter().position(|each| *each == name))
    }

    /// How the check is asked for, as option and word.
    fn shown(&self, check: CertificateCheck) -> (&'static str, &'static str) {
        let (option, words) = self.modes[0];
        let word = words.iter().find(|(_, mode)| *mode == Mode::On(check));
        (option, word.map_or("", |(word, _)| word))
    }
}

/// What scheme and options of an address say.
pub(crate) struct Read {
    /// The scheme of the same address without TLS.
    pub(crate) scheme: String,
    /// The TCP port, where the scheme has one of its own.
    pub(crate) port: Option<u16>,
    pub(crate) tls: Option<Tls>,
}

/// Reads what scheme and options say; or the reason why that cannot be.
pub(crate) fn read(scheme: &str, options: &[(String, String)]) -> Result<Read, String> {
    let Some((spelling, is_secure)) = Spelling::of(scheme) else {
        if !options.is_empty() {
            return Err(format!("{scheme}:// takes no options after ?, and has no TLS here"));
        }
        return Ok(Read { scheme: scheme.to_owned(), port: None, tls: None });
    };
    let mut mode: Option<(String, Mode)> = None;
    let mut files: [Option<PathBuf>; 3] = [None, None, None];
    let mut binding: Option<bool> = None;
    for (name, value) in options {
        if let Some((_, words)) = spelling.modes.iter().find(|(option, _)| option == name) {
            let said = word(words, value).ok_or_else(|| {
                let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                let hint = crate::hint(value, known.iter().copied());
                format!("{name} is not one of {}: \"{value}\"{hint}", known.join(", "))
            })?;
            if mode.replace((name.clone(), said)).is_some() {
                return Err(format!("{name} says again what is checked"));
            }
        } else if let Some(place) = spelling.file(name) {
            if value.is_empty() {
                return Err(format!("{name} names no file"));
            }
            if files[place].replace(PathBuf::from(value)).is_some() {
                return Err(format!("{name} is given twice"));
            }
        } else if spelling.binding.is_some_and(|option| option == name) {
            let binds = match value.as_str() {
                "require" => true,
                "prefer" => false,
                _ => return Err(format!("{name} is not one of prefer, require: \"{value}\"")),
            };
            if binding.replace(binds).is_some() {
                return Err(format!("{name} is given twice"));
            }
        } else {
            let known = spelling.options();
            let hint = crate::hint(name, known.iter().copied());
            return Err(format!("unknown option \"{name}\" after ?{hint} (known are {})", known.join(", ")));
        }
    }
    let has_more = files.iter().any(Option::is_some) || binding.is_some();
    let check = match (mode, spelling.secure) {
        (Some((name, Mode::Perhaps)), _) => {
            let (_, word) = spelling.shown(CertificateCheck::Name);
            return Err(format!(
                "this {name} would continue without TLS if the server has none: write {name}={word}, or a weaker check"
            ));
        }
        (mode @ (Some((_, Mode::Off)) | None), None) => {
            if has_more {
                let (option, word) = spelling.shown(CertificateCheck::Name);
                let why = if mode.is_some() { "with TLS off" } else { "unless TLS is asked for" };
                return Err(format!(
                    "certificates and channel binding mean nothing {why}: write {option}={word}"
                ));
            }
            None
        }
        (Some((name, Mode::Off)), Some((secure, _))) if is_secure => {
            return Err(format!(
                "{secure}:// asks for TLS: leave out {name}, or write {}://",
                spelling.schemes[0]
            ));
        }
        (mode, Some((secure, _))) if !is_secure => {
            if has_more || mode.is_some_and(|(_, mode)| mode != Mode::Off) {
                return Err(format!("the options are those of TLS, which is asked for by {secure}://"));
            }
            None
        }
        (Some((_, Mode::On(check))), _) => Some(check),
        (_, Some(_)) => Some(CertificateCheck::Name),
    };
    let [issuers, chain, key] = files;
    let certificate = match (chain, key) {
        (Some(chain), Some(key)) => Some(OwnCertificate { chain, key }),
        (None, None) => None,
        (chain, _) => {
            let [_, certificate, key] = spelling.files;
            let (given, missing) = if chain.is_some() { (certificate, key) } else { (key, certificate) };
            return Err(format!("{given} has no effect without {missing}"));
        }
    };
    let tls = check.map(|check| Tls {
        // as with libpq: whoever names an issuer wants it checked
        check: if issuers.is_some() { check.max(CertificateCheck::Issuer) } else { check },
        issuers,
        certificate,
        binds: binding.unwrap_or_default(),
    });
    let (scheme, port) = match spelling.secure {
        Some((_, port)) if is_secure => (spelling.schemes[0].to_owned(), port),
        _ => (scheme.to_owned(), None),
    };
    Ok(Read { scheme, port, tls })
}

/// What a word asks for, in whatever case.
fn word(words: Words, said: &str) -> Option<Mode> {
    words.iter().find(|(word, _)| word.eq_ignore_ascii_case(said)).map(|(_, mode)| *mode)
}

/// The scheme and the options by which an address asks for this.
pub(crate) fn written<'a>(scheme: &'a str, tls: &'a Tls) -> (&'a str, Vec<(&'static str, Cow<'a, str>)>) {
    let Some((spelling, _)) = Spelling::of(scheme) else { return (scheme, Vec::new()) };
    let mut options = Vec::new();
    let (option, word) = spelling.shown(tls.check);
    if spelling.secure.is_none() || tls.check != CertificateCheck::Name {
        options.push((option, Cow::Borrowed(word)));
    }
    let certificate = tls.certificate.as_ref();
    let files = [
        tls.issuers.as_deref(),
        certificate.map(|own| own.chain.as_path()),
        certificate.map(|own| own.key.as_path()),
    ];
    let named = spelling.files.into_iter().zip(files);
    options.extend(named.filter_map(|(name, file)| Some((name, file.map(Path::to_string_lossy)?))));
    options.extend(spelling.binding.filter(|_| tls.binds).map(|name| (name, Cow::Borrowed("require"))));
    (spelling.secure.map_or(scheme, |(secure, _)| secure), options)
}

/// How an address of this scheme asks for TLS with everything checked, as one would write it.
#[must_use]
pub fn asked_for(scheme: &str) -> String {
    match Spelling::of(scheme) {
        Some((Spelling { secure: Some((secure, _)), .. }, _)) => format!("{secure}://"),
        Some((spelling, _)) => {
            let (option, word) = spelling.shown(CertificateCheck::Name);
            format!("?{option}={word}")
        }
        None => "no address".to_owned(),
    }
}

/// How an address of this scheme asks for less to be checked, as option and word.
#[must_use]
pub fn checked_less(scheme: &str, check: CertificateCheck) -> String {
    Spelling::of(scheme).map_or_else(String::new, |(spelling, _)| {
        let (option, word) = spelling.shown(check);
        format!("{option}={word}")
    })
}

/// The options of an address of this scheme that name the issuers' file, and the client's own certificate and key.
#[must_use]
pub fn file_options(scheme: &str) -> [&'static str; 3] {
    Spelling::of(scheme).map_or(LIBPQ_FILES, |(spelling, _)| spelling.files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Address;

    fn tls(text: &str) -> Option<Tls> {
        Address::parse(text).unwrap_or_else(|error| panic!("{error}")).tls.map(|tls| *tls)
    }

    fn refused(text: &str) -> String {
        Address::parse(text).expect_err(text).reason
    }

    #[test]
    fn each_store_is_asked_as_by_its_own_clients() {
        use CertificateCheck::{Issuer, Name, Nothing};
        for (text, check) in [
            ("postgres://h/db?sslmode=require", Nothing),
            ("postgresql://h/db?sslmode=verify-ca", Issuer),
            ("postgres://h/db?sslmode=verify-full", Name),
            ("postgres://h?sslmode=require&sslrootcert=ca.pem", Issuer),
            ("mysql://h?ssl-mode=REQUIRED", Nothing),
            ("mariadb+aria://h/db?ssl-mode=verify_ca", Issuer),
            ("mysql+myisam://h?ssl-mode=VERIFY_IDENTITY", Name),
            ("rediss://h/3", Name),
            ("rediss://h?sslmode=require", Nothing),
            ("amqps://h/orders", Name),
            ("amqps://h?verify=verify_none", Nothing),
            ("amqps://h?verify=verify_none&cacertfile=ca.pem", Issuer),
            ("tls://h", Name),
            ("https://h", Name),
        ] {
            assert_eq!(tls(text).map(|tls| tls.check), Some(check), "{text}");
        }
        for text in
            ["postgres://h", "postgres://h?sslmode=disable", "mysql://h?ssl-mode=DISABLED", "redis://h"]
        {
            assert_eq!(tls(text), None, "{text}");
        }
    }

    /// What is said of the way beyond a pooler must not pass for what clients have.
    #[test]
    fn the_servers_side_is_told_where_it_is_another_connection() {
        let tls = |version: &str, cipher: &str| NegotiatedTls {
            version: version.to_owned(),
            cipher: cipher.to_owned(),
            checked: CertificateCheck::Name,
            beyond: None,
        };
        let newer = || tls("TLSv1.3", "TLS_AES_256_GCM_SHA384");
        let older = || tls("TLSv1.2", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384");
        let chacha = || tls("TLSv1.2", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256");
        for (tls, version, cipher) in [
            (newer(), "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
            (older(), "TLSv1.2", "ECDHE-RSA-AES256-GCM-SHA384"),
            (chacha(), "TLSv1.2", "ECDHE-ECDSA-CHACHA20-POLY1305"),
            (newer(), "", ""),
            (newer(), "unknown", "unknown"),
        ] {
            assert_eq!(tls.clone().beside(version, cipher), tls, "{version} {cipher}");
        }
        for (version, cipher, said) in [
            ("none", "none", "no TLS"),
            ("TLSv1.2", "ECDHE-RSA-AES256-GCM-SHA384", "TLSv1.2, ECDHE-RSA-AES256-GCM-SHA384"),
            ("TLSv1.3", "TLS_AES_128_GCM_SHA256", "TLSv1.3, TLS_AES_128_GCM_SHA256"),
        ] {
            let beyond = newer().beside(version, cipher);
            assert_eq!(beyond.beyond.as_deref(), Some(said));
            assert!(beyond.to_string().contains(&format!("the server reports {said}: ")), "{beyond}");
        }
    }

    #[test]
    fn a_scheme_of_tls_has_its_own_port() {
        for (text, scheme, port) in [
            ("amqps://h", "amqp", Some(5671)),
            ("amqps://h:1", "amqp", Some(1)),
            ("https://h", "http", Some(443)),
            ("https://h:443", "http", Some(443)),
            ("https://h:9200", "http", Some(9200)),
            ("rediss://h", "redis", None),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!((address.scheme.as_str(), address.port), (scheme, port), "{text}");
        }
    }

    #[test]
    fn files_are_named_as_by_the_stores_clients_or_by_libpqs() {
        for text in [
            "mysql://h?ssl-mode=REQUIRED&ssl-ca=/a b/ca.pem&ssl-cert=c+c.pem&ssl-key=k.pem",
            "mysql://h?ssl-mode=REQUIRED&sslrootcert=/a b/ca.pem&sslcert=c+c.pem&sslkey=k.pem",
            "amqps://h?cacertfile=/a b/ca.pem&certfile=c+c.pem&keyfile=k.pem",
            "https://h?sslrootcert=/a b/ca.pem&sslcert=c+c.pem&sslkey=k.pem",
        ] {
            let mut tls = tls(text).unwrap();
            let files: Vec<_> = tls.files_mut().map(|file| file.display().to_string()).collect();
            assert_eq!(files, ["/a b/ca.pem", "c+c.pem", "k.pem"], "{text}");
        }
    }

    #[test]
    fn what_is_asked_of_tls_is_shown_and_reads_back() {
        for text in [
            "postgres://h/db?sslmode=verify-full&sslrootcert=/etc/ca.pem",
            "postgres://h?sslmode=require&channel_binding=require",
            "mysql+myisam://h?ssl-mode=VERIFY_CA&ssl-ca=ca.pem&ssl-cert=c.pem&ssl-key=k.pem",
            "rediss://h:1/2",
            "amqps://h:5671/orders?sslmode=require",
            "tls://h?sslrootcert=ca.pem",
            "https://h:9200",
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(address.to_string(), text);
        }
        let odd = Address::parse("rediss://h?sslrootcert=%26%3F%25%23/ä.pem").unwrap();
        assert_eq!(Address::parse(&odd.to_string()).unwrap(), odd);
    }

    #[test]
    fn what_would_go_on_without_tls_is_refused() {
        for text in
            ["postgres://h?sslmode=prefer", "postgres://h?sslmode=allow", "mysql://h?ssl-mode=PREFERRED"]
        {
            assert!(refused(text).contains("would continue without TLS"), "{text}");
        }
    }

    #[test]
    fn an_option_that_would_mean_nothing_is_refused() {
        for (text, reason) in [
            ("postgres://h?sslrootcert=ca.pem", "unless TLS is asked for: write sslmode=verify-full"),
            ("mysql://h?ssl-mode=DISABLED&ssl-ca=a", "with TLS off: write ssl-mode=VERIFY_IDENTITY"),
            ("postgres://h?sslmode=requir", "did you mean \"require\"?"),
            ("postgres://h?ssl-mode=require", "did you mean \"sslmode\"?"),
            ("redis://h?sslmode=require", "rediss://"),
            ("rediss://h?sslmode=disable", "write redis://"),
            ("postgres://h?sslmode=require&sslmode=disable", "again"),
            ("amqps://h?verify=verify_none&sslmode=verify-full", "again"),
            ("rediss://h?sslrootcert=", "names no file"),
            ("rediss://h?sslrootcert=a&sslrootcert=b", "twice"),
            ("mysql://h?ssl-mode=REQUIRED&ssl-ca=a&sslrootcert=b", "twice"),
            ("postgres://h?channel_binding=require", "unless TLS is asked for"),
            ("rediss://h?channel_binding=require", "unknown option"),
            ("rediss://h?sslcert=a", "no effect without sslkey"),
            ("amqps://h?keyfile=a", "no effect without certfile"),
            ("tarantool://h?sslmode=require", "no TLS here"),
        ] {
            let said = refused(text);
            assert!(said.contains(reason), "{text}: {said}");
        }
    }
}
