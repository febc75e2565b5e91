//! `NKeys`: a user who proves who it is by signing what the server asks (Ed25519), whose private key never leaves here.
//!
//! A seed is written in base32 (RFC 4648, without padding): two bytes that say what it is for, 32 bytes of the seed, and the
//! CRC-16 (XMODEM) of both, low byte first (NATS' nkeys, `strkey.go`).

#[cfg(feature = "tls")]
use std::fmt;

#[cfg(feature = "tls")]
use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD};
#[cfg(feature = "tls")]
use ring::signature::{Ed25519KeyPair, KeyPair};

/// A byte that a seed begins with, and the one that its user's public key begins with.
#[cfg(feature = "tls")]
const SEED: u8 = 18 << 3;
#[cfg(feature = "tls")]
const USER: u8 = 20 << 3;

/// Whether a secret is meant to be a seed, which is no word that a server may hear: it has its letters and its length.
#[must_use]
pub fn looks_like_seed(secret: &str) -> bool {
    let is_base32 = |byte: u8| byte.is_ascii_uppercase() || (b'2'..=b'7').contains(&byte);
    secret.len() == 58 && secret.starts_with('S') && secret.bytes().all(is_base32)
}

/// The 32 bytes of a user's seed; none if it is not one.
#[cfg(feature = "tls")]
fn seed_of_user(seed: &str) -> Option<[u8; 32]> {
    let bytes = BASE32_NOPAD.decode(seed.as_bytes()).ok()?;
    let (content, checksum) = bytes.split_last_chunk::<2>()?;
    let (&[first, second], seed) = content.split_first_chunk::<2>()?;
    // the kind of key is in 5 bits that lie across both bytes
    let kind = (first & 0b0111) << 5 | (second & 0b1111_1000) >> 3;
    let is_users =
        first & 0b1111_1000 == SEED && kind == USER && u16::from_le_bytes(*checksum) == crc(content);
    is_users.then(|| seed.try_into().ok())?
}

#[cfg(feature = "tls")]
pub struct UserKey(Ed25519KeyPair);

#[cfg(feature = "tls")]
impl UserKey {
    /// Reads a user's seed; none if it is not one.
    #[must_use]
    pub fn of_seed(seed: &str) -> Option<Self> {
        Ed25519KeyPair::from_seed_unchecked(&seed_of_user(seed)?).ok().map(Self)
    }

    /// The public key, by which the server knows the user.
    #[must_use]
    pub fn public(&self) -> String {
        let mut bytes = vec![USER];
        bytes.extend_from_slice(self.0.public_key().as_ref());
        bytes.extend(crc(&bytes).to_le_bytes());
        BASE32_NOPAD.encode(&bytes)
    }

    /// The signature of what the server asks to have signed.
    #[must_use]
    pub fn sign(&self, nonce: &str) -> String {
        BASE64URL_NOPAD.encode(self.0.sign(nonce.as_bytes()).as_ref())
    }
}

#[cfg(feature = "tls")]
impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UserKey").field(&self.public()).finish()
    }
}

#[cfg(feature = "tls")]
fn crc(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ u16::from(*byte) << 8,
            |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 },
        )
    })
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    /// From the documentation of NATS (nkeys).
    const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";

    #[test]
    fn a_seed_is_known_by_its_form() {
        let key = UserKey::of_seed(SEED).unwrap();
        assert_eq!(key.public(), "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4");
        assert!(!format!("{key:?}").contains(SEED));
        for other in
            ["", "hunter2", "SUACSSL3", &SEED.to_lowercase(), &SEED.replace("CSSL", "CSSM"), &SEED[..57]]
        {
            assert!(UserKey::of_seed(other).is_none(), "{other}");
        }
        // an account's, and not a user's
        assert!(UserKey::of_seed("SAANJIBNEKGCRUWJCPIWUXFBFJLR36FJTFKGBGKAT7AQXH2LVFNQWZJMQU").is_none());
    }
}
