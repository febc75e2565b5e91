//! Tokens, and what is kept of them.

use std::fmt;

use acidtest_model::Secret;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use rand::RngExt;
use sha2::{Digest, Sha256};

/// What every token begins with, so that one is known for what it is where it should not be.
const PREFIX: &str = "agw_";
/// The most bytes that are looked at.
const LONGEST: usize = 128;

/// A token: 256 random bits. They cannot be guessed, and so a plain hash keeps them secret; a slow one would only make
/// authentication slow.
pub struct Token(Secret);

/// The SHA-256 of a token: all that is kept.
pub(super) type Hash = [u8; 32];

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Token {
    pub(super) fn new() -> Self {
        let random: [u8; 32] = rand::rng().random();
        Self(Secret::new(format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(random))))
    }

    /// The token that a request gives: by `Authorization: Bearer TOKEN`, or, for browsers, as the password of `Basic`.
    pub(super) fn given(authorization: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(authorization).ok()?;
        let (scheme, value) = text.split_once(' ')?;
        let value = value.trim();
        let token = if scheme.eq_ignore_ascii_case("bearer") {
            value.to_owned()
        } else if scheme.eq_ignore_ascii_case("basic") {
            let login = base64::prelude::BASE64_STANDARD.decode(value).ok()?;
            String::from_utf8(login).ok()?.split_once(':')?.1.to_owned()
        } else {
            return None;
        };
        (!token.is_empty() && token.len() <= LONGEST).then(|| Self(Secret::new(token)))
    }

    pub(super) fn hash(&self) -> Hash {
        Sha256::digest(self.0.reveal()).into()
    }

    /// The token itself, to be shown once.
    #[must_use]
    pub fn reveal(&self) -> &str {
        self.0.reveal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_taken_from_either_header_and_never_shown() {
        let token = Token::new();
        let bearer = format!("bearer  {}", token.reveal());
        let basic =
            format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(format!("ops:{}", token.reveal())));
        for header in [bearer, basic] {
            let given = Token::given(header.as_bytes()).unwrap();
            assert_eq!((given.hash(), format!("{given:?}")), (token.hash(), "***".to_owned()));
        }
        assert!(token.reveal().len() == 47 && token.reveal() != Token::new().reveal());
        for bad in
            ["", "Bearer", "Bearer ", "Token x", "Basic !", "Basic eA==", "\u{e4}", &"Bearer x".repeat(40)]
        {
            assert!(Token::given(bad.as_bytes()).is_none(), "{bad}");
        }
        assert!(Token::given(b"Bearer \xff").is_none());
    }
}
