//! Who may ask: whose requests are answered at all.
//!
//! A page of another site must not be able to start a run, nor to read anything, also where it has its own name lead to
//! this machine (DNS rebinding):
//!
//! - The host that a request names is this machine by its address, `localhost`, or a name that the server was told.
//! - A request that says where it comes from (`Origin`, `Sec-Fetch-Site`) comes from a page of this server. No other site
//!   is given leave (CORS).
//! - A body of JSON is what no form of another site can send. A form of a page says which page it comes from (`Origin`).
//! - Where there is a token, every request has it, or the cookie that a browser gets for it; but for the page that asks
//!   for it.

use std::net::{IpAddr, Ipv6Addr};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::problem::Problem;
use crate::{app::App, pages};

/// A token that requests must have.
#[derive(Clone)]
pub struct Token {
    digest: [u8; 32],
    /// What a browser has in its stead, from which the token does not follow.
    session: String,
    /// The name of the cookie in which it keeps that: browsers keep those of all servers of a host together.
    cookie: String,
}

/// Length of the shortest token that is worth its name.
const SHORTEST: usize = 16;

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(***)")
    }
}

impl Token {
    /// A token as it stands in a file, without the blanks around it.
    ///
    /// # Errors
    /// It is too short to be secret, or cannot be in a header.
    pub fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.len() < SHORTEST || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "a token has at least {SHORTEST} letters, digits and signs and no blanks, as from: openssl rand -hex 32"
            ));
        }
        let hex = |what: &str| {
            let digest = Sha256::new().chain_update(what).chain_update(text).finalize();
            digest.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
        };
        let cookie = format!("acidtest-{}", &hex("acidtest cookie ")[..8]);
        Ok(Self { digest: Sha256::digest(text).into(), session: hex("acidtest session "), cookie })
    }

    /// Whether it is this one, found out in a time that tells nothing of it.
    pub(crate) fn is(&self, text: &[u8]) -> bool {
        let digest: [u8; 32] = Sha256::digest(text).into();
        self.digest.ct_eq(&digest).into()
    }

    /// The cookie of a browser whose user knows the token, for 30 days. No script reads it, and of another site only a link
    /// that is followed has it sent, which changes nothing. From a server with TLS, it is never sent without.
    pub(crate) fn cookie(&self, is_secure: bool) -> String {
        let secure = if is_secure { "; Secure" } else { "" };
        format!("{}={}; Path=/; Max-Age=2592000; HttpOnly; SameSite=Lax{secure}", self.cookie, self.session)
    }

    /// Whether these headers have it: as a token, or in a cookie.
    fn is_in(&self, headers: &HeaderMap) -> Result<bool, Problem> {
        let bearer = one(headers, &header::AUTHORIZATION)?.and_then(|given| {
            let (scheme, given) = given.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(given.trim())
        });
        if let Some(token) = bearer {
            return Ok(self.is(token.as_bytes()));
        }
        // what other programs of this host keep in cookies is sent, too, and may be anything
        let cookies =
            headers.get_all(header::COOKIE).iter().flat_map(|all| all.as_bytes().split(|byte| *byte == b';'));
        let mut ours = cookies
            .filter_map(|each| each.trim_ascii().strip_prefix(self.cookie.as_bytes())?.strip_prefix(b"="));
        Ok(ours.any(|value| bool::from(self.session.as_bytes().ct_eq(value))))
    }
}

/// Whose requests are answered.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    pub(crate) token: Option<Token>,
    /// Whether requests can come from this machine only, so that an address of another one is no name of this one.
    pub(crate) is_local: bool,
    /// Whether it speaks TLS.
    pub(crate) is_secure: bool,
    /// Names of this machine besides `localhost`, in small letters.
    pub(crate) hosts: Vec<String>,
}

impl Guard {
    fn admit(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        authority: Option<&str>,
    ) -> Result<(), Problem> {
        let host = one(headers, &header::HOST)?.or(authority);
        let Some(host) = host else {
            return Err(Problem::bad_request("the request names no host (the header Host)"));
        };
        if !self.is_here(host) {
            return Err(forbidden(
                "host",
                "the request names a host that is not this server's; name it with --allow-host if it is, or use its address",
            ));
        }
        if let Some(origin) = one(headers, &header::ORIGIN)? {
            // something in front of a server without TLS may add it; nothing takes it away
            let open = origin.strip_prefix("http://").filter(|_| !self.is_secure);
            let of = open.or_else(|| origin.strip_prefix("https://"));
            if of.is_none_or(|of| !of.eq_ignore_ascii_case(host)) {
                return Err(forbidden("origin", "the request comes from a page of another site"));
            }
        }
        // a link may lead here; nothing else of another site's page may, neither a picture nor a frame, as answers cost.
        // Browsers that say nothing of it are old, or ask another host than loopback without TLS
        let is_reading = matches!(*method, Method::GET | Method::HEAD);
        let says = |name, word| {
            let said = one(headers, &header::HeaderName::from_static(name))?;
            Ok::<_, Problem>(said.is_none_or(|said| said == word))
        };
        let is_link =
            is_reading && says("sec-fetch-mode", "navigate")? && says("sec-fetch-dest", "document")?;
        let site = one(headers, &header::HeaderName::from_static("sec-fetch-site"))?;
        if !is_link && site.is_some_and(|site| !["same-origin", "none"].contains(&site)) {
            return Err(forbidden("origin", "the request comes from a page of another site"));
        }
        match &self.token {
            Some(token) if !pages::is_open(path) && !token.is_in(headers)? => Err(Problem::new(
                StatusCode::UNAUTHORIZED,
                "token",
                "A token is needed",
                "this server answers requests that have its token: Authorization: Bearer TOKEN",
            )
            .with(header::WWW_AUTHENTICATE, "Bearer")),
            _ => Ok(()),
        }
    }

    /// Whether it names this server: by an address, or by a name that is known.
    fn is_here(&self, host: &str) -> bool {
        let name = without_port(host);
        let ip = name.parse::<IpAddr>().ok().or_else(|| {
            let inner = name.strip_prefix('[')?.strip_suffix(']')?;
            inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
        });
        if let Some(ip) = ip {
            return ip.is_loopback() || !self.is_local;
        }
        let name = name.to_ascii_lowercase();
        name == "localhost" || self.hosts.contains(&name)
    }
}

/// A host without the port that may follow it.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => {
            // of an IPv6 address without brackets, what follows the last colon is no port
            if name.contains(':') && !name.ends_with(']') { host } else { name }
        }
        _ => host,
    }
}

/// The value of a header that may be there once.
fn one<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Result<Option<&'a str>, Problem> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| {
            Problem::bad_request(format!("the header {name} has characters that are not allowed in it"))
        }),
        (Some(_), Some(_)) => Err(Problem::bad_request(format!("the header {name} is there twice"))),
    }
}

fn forbidden(kind: &str, detail: &str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, kind, "The request is not answered", detail)
}

/// Headers of every answer: nothing of it is for another site, and no browser guesses what it is or keeps it.
const ALWAYS: [(header::HeaderName, &str); 6] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Answers a request if it is to be answered, and counts it.
pub(crate) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let shown = pages::is_page(path).then(|| pages::to_login(&request));
    let admitted = app.guard.admit(
        request.method(),
        path,
        request.headers(),
        request.uri().authority().map(Authority::as_str),
    );
    let mut response = match admitted {
        Ok(()) => next.run(request).await,
        // whoever reads pages is asked for the token
        Err(problem) => {
            app.metrics.refused();
            match shown {
                Some(login) if problem.status() == StatusCode::UNAUTHORIZED => login,
                _ => problem.into_response(),
            }
        }
    };
    for (name, value) in ALWAYS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    // a page that shows something says itself what it may load
    response
        .headers_mut()
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"));
    app.metrics.answered(response.status().as_u16());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard_of(token: Option<&str>, is_local: bool, hosts: &[&str]) -> Guard {
        let token = token.map(|token| Token::new(token).unwrap());
        Guard {
            token,
            is_local,
            is_secure: false,
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        }
    }

    /// The status of the refusal of a request with these headers; none if it is admitted.
    fn refused(guard: &Guard, method: &Method, headers: &[(&str, &str)]) -> Option<u16> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(header::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        guard.admit(method, "/api/runs", &map, None).err().map(|problem| problem.status().as_u16())
    }

    #[test]
    fn only_a_host_that_is_this_server_is_answered() {
        let local = guard_of(None, true, &["bench.example"]);
        let open = guard_of(None, false, &[]);
        for (host, on_loopback, elsewhere) in [
            ("127.0.0.1:1730", true, true),
            ("127.0.0.1", true, true),
            ("localhost:1730", true, true),
            ("LOCALHOST", true, true),
            ("[::1]:1730", true, true),
            ("::1", true, true),
            ("bench.example:1730", true, false),
            ("BENCH.example", true, false),
            ("192.0.2.7:1730", false, true),
            ("evil.example", false, false),
            ("localhost.evil.example", false, false),
            ("127.0.0.1.evil.example", false, false),
            ("127.0.0.1:1730.evil.example", false, false),
            ("localhost:1730@evil.example", false, false),
            ("", false, false),
            (":1730", false, false),
            ("[::1", false, false),
            ("0x7f.1", false, false),
        ] {
            let of = |guard| refused(guard, &Method::GET, &[("host", host)]).is_none();
            assert_eq!((of(&local), of(&open)), (on_loopback, elsewhere), "{host}");
        }
        assert_eq!(refused(&local, &Method::GET, &[]), Some(400));
        assert_eq!(refused(&local, &Method::GET, &[("host", "localhost"), ("host", "localhost")]), Some(400));
    }

    #[test]
    fn a_page_of_another_site_is_not_answered() {
        let guard = guard_of(None, true, &[]);
        let of = |method: Method, rest: &[(&str, &str)]| {
            let mut headers = vec![("host", "127.0.0.1:1730")];
            headers.extend_from_slice(rest);
            refused(&guard, &method, &headers)
        };
        assert_eq!(of(Method::POST, &[]), None, "curl says nothing of where it comes from");
        assert_eq!(of(Method::POST, &[("origin", "http://127.0.0.1:1730")]), None);
        let link = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
        assert_eq!(of(Method::GET, &link), None, "a link leads here");
        assert_eq!(of(Method::POST, &link), Some(403));
        assert_eq!(of(Method::GET, &[link[0], link[1], ("sec-fetch-dest", "iframe")]), Some(403));
        assert_eq!(of(Method::GET, &[link[0], link[1], ("sec-fetch-dest", "document")]), None);
        for mode in ["no-cors", "cors", "same-origin"] {
            let picture = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", mode)];
            assert_eq!(of(Method::GET, &picture), Some(403), "{mode}");
            assert_eq!(of(Method::GET, &[("sec-fetch-site", "same-origin"), ("sec-fetch-mode", mode)]), None);
        }
        for origin in
            ["http://evil.example", "null", "http://127.0.0.1:9999", "http://127.0.0.1", "", "file://"]
        {
            for method in [Method::GET, Method::POST, Method::DELETE] {
                assert_eq!(of(method, &[("origin", origin)]), Some(403), "{origin}");
            }
        }
        for site in ["cross-site", "same-site", ""] {
            assert_eq!(of(Method::POST, &[("sec-fetch-site", site)]), Some(403), "{site}");
            assert_eq!(of(Method::DELETE, &[("sec-fetch-site", site)]), Some(403), "{site}");
        }
    }

    #[test]
    fn where_there_is_a_token_every_request_has_it() {
        let token = "0123456789abcdef";
        let guard = guard_of(Some(token), false, &[]);
        let of = |given: Option<&str>| {
            let mut headers = vec![("host", "192.0.2.7")];
            headers.extend(given.map(|given| ("authorization", given)));
            refused(&guard, &Method::GET, &headers)
        };
        assert_eq!(of(Some("Bearer 0123456789abcdef")), None);
        assert_eq!(of(Some("bearer 0123456789abcdef")), None);
        for wrong in [
            None,
            Some(""),
            Some("Bearer"),
            Some("Bearer "),
            Some("Basic 0123456789abcdef"),
            Some("Bearer 0123456789abcdeF"),
            Some("Bearer 0123456789abcde"),
            Some("0123456789abcdef"),
        ] {
            assert_eq!(of(wrong), Some(401), "{wrong:?}");
        }
        assert!(Token::new("short").is_err() && Token::new("with a blank in it").is_err());
        assert!(!format!("{guard:?}").contains(token));
    }
}
