//! What the server's errors prove.

use acidtest_engine::{Attempt, Fault};

use crate::{protocol::ServerError, server::Request};

/// How much of a request is proved to have had no effect by an error with a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// All of it. The server asks for the state that it is in before it carries out a command (`processCommand` in
    /// server.c), and within a script no more once that has written (`scriptVerifyWriteCommandAllow` and `scriptVerifyOOM` in
    /// script.c), so that it never ends one half-way. To the command that calls a script it answers so before it runs anything.
    Request,
    /// The command that it answers. Those before it in the same script may have written, and are not undone.
    Command,
}

/// Whether the server that answers an error serves requests of this kind at all, for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serves {
    Yes,
    /// It is, or has become, a server that others are to be asked for.
    No,
}

/// Every code that proves something. Redis has these words for itself: what stands between may pass them on, and has others
/// for what it has to say, such as `ERR`, or none at all.
const REFUSALS: &[(&str, Proof, Serves)] = &[
    // it may not use more memory
    ("OOM", Proof::Request, Serves::Yes),
    // it does not keep the script
    ("NOSCRIPT", Proof::Request, Serves::Yes),
    // its last save, or write to its log, has failed
    ("MISCONF", Proof::Request, Serves::Yes),
    // a script runs for too long
    ("BUSY", Proof::Request, Serves::Yes),
    // nobody has logged in
    ("NOAUTH", Proof::Request, Serves::Yes),
    // a cluster has these keys elsewhere, or moves them, or has them in several places
    ("MOVED", Proof::Request, Serves::Yes),
    ("ASK", Proof::Request, Serves::Yes),
    ("TRYAGAIN", Proof::Request, Serves::Yes),
    ("CROSSSLOT", Proof::Request, Serves::Yes),
    // it is a replica
    ("READONLY", Proof::Request, Serves::No),
    // a replica that has lost its primary, and does not answer with old data
    ("MASTERDOWN", Proof::Request, Serves::No),
    // it has not read its data yet
    ("LOADING", Proof::Request, Serves::No),
    // it is a primary whose replicas are gone, and may have been replaced
    ("NOREPLICAS", Proof::Request, Serves::No),
    ("CLUSTERDOWN", Proof::Request, Serves::No),
    // it became a replica while a command waited
    ("UNBLOCKED", Proof::Command, Serves::No),
    // the key has a value of another type
    ("WRONGTYPE", Proof::Command, Serves::Yes),
    // the user may not call the command, or not with this key
    ("NOPERM", Proof::Command, Serves::Yes),
    // the stream or its group is gone
    ("NOGROUP", Proof::Command, Serves::Yes),
];

/// What begins the server's words on a transaction that it has not begun to carry out.
const ABORTED: &str = "EXECABORT";
/// What may follow, before the error that is the reason.
const BECAUSE: &str = "EXECABORT Transaction discarded because of: ";

fn known(error: &ServerError) -> Option<(Proof, Serves)> {
    let code = error.because(BECAUSE);
    REFUSALS.iter().find(|(known, ..)| *known == code).map(|(_, proof, serves)| (*proof, *serves))
}

/// Whether none of a transaction's commands was carried out.
pub(crate) fn is_aborted(error: &ServerError) -> bool {
    error.code() == ABORTED
}

/// How a request ends that was answered by this error: in doubt, it is unknown.
pub(crate) fn ended(error: &ServerError, request: Request) -> Attempt {
    let is_proved = match (known(error), request) {
        (_, Request::Harmless) | (Some((Proof::Request, _)), _) => true,
        (Some((Proof::Command, _)), request) => request == Request::Change,
        (None, _) => false,
    };
    if is_proved { Attempt::Failed(fault(error)) } else { unproved(error) }
}

/// How a request ends that may have had an effect, whatever the error's code says.
pub(crate) fn unproved(error: &ServerError) -> Attempt {
    Attempt::Unknown(Fault { connection_lost: true, ..fault(error) })
}

/// The error, in the server's words.
pub(crate) fn fault(error: &ServerError) -> Fault {
    match known(error) {
        Some((_, Serves::No)) => Fault::turned_away(error.to_string()),
        _ => Fault::answered(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(words: &str, request: Request) -> Attempt {
        ended(&ServerError::new(words.as_bytes()), request)
    }

    fn failed(words: &str) -> Attempt {
        Attempt::Failed(Fault::answered(words))
    }

    fn turned_away(words: &str) -> Attempt {
        Attempt::Failed(Fault::turned_away(words))
    }

    fn unknown(words: &str) -> Attempt {
        Attempt::Unknown(Fault::lost(words))
    }

    #[test]
    fn a_change_has_failed_only_where_the_code_proves_it() {
        for words in ["OOM command not allowed", "NOSCRIPT No matching script", "MOVED 3999 127.0.0.1:6381"] {
            for request in [Request::Change, Request::Script, Request::Harmless] {
                assert_eq!(change(words, request), failed(words), "{request:?}");
            }
        }
        // by twemproxy, Envoy, predixy and HAProxy; by a script of Redis 6, which hides the code; by nobody that is known
        for words in [
            "ERR Connection timed out",
            "ERR Connection refused",
            "ERR upstream failure",
            "upstream failure",
            "no upstream host",
            "ERR Error running script (call to f_1): @user_script:1: -OOM command not allowed",
            "ERR server connection close",
            "OOMPH",
            "OOM: no",
            "oom",
            "",
        ] {
            for request in [Request::Change, Request::Script] {
                assert_eq!(change(words, request), unknown(words), "{request:?}");
            }
            assert_eq!(change(words, Request::Harmless), failed(words));
        }
    }

    /// What an earlier command of a script has written stays.
    #[test]
    fn an_error_within_a_script_proves_nothing_of_the_commands_before() {
        for words in ["WRONGTYPE Operation against a key", "NOPERM this user has no permissions"] {
            assert_eq!(change(words, Request::Change), failed(words));
            assert_eq!(change(words, Request::Script), unknown(words));
        }
    }

    #[test]
    fn a_server_that_serves_nobody_for_now_counts_as_lost() {
        for words in ["READONLY You can't write against a read only replica.", "LOADING Redis is loading"] {
            assert_eq!(change(words, Request::Script), turned_away(words));
            assert_eq!(change(words, Request::Harmless), turned_away(words));
        }
        let aborted = "EXECABORT Transaction discarded because of: READONLY You can't write";
        let error = ServerError::new(aborted.as_bytes());
        assert!(is_aborted(&error) && fault(&error) == Fault::turned_away(aborted));
        let error = ServerError::new(b"EXECABORT Transaction discarded because of previous errors.");
        assert!(is_aborted(&error) && !fault(&error).turned_away);
    }

    #[test]
    fn every_code_stands_in_the_page_that_tells_them() {
        let page = include_str!("../GUARANTEES.md");
        for (code, ..) in REFUSALS {
            assert!(page.contains(&format!("`{code}`")), "{code}");
        }
    }
}
