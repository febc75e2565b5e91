//! Keeps passwords out of sight, also out of the process title.

use std::{
    env, fs,
    io::{Seek, SeekFrom, Write},
};

use crate::output;

/// Takes the arguments and, where one holds a password, wipes them from this process's memory where
/// `ps` would read them. The arguments are read once, before anything else.
///
/// A password is still visible for the moment between the start of the process and this; the
/// environment variable `ACIDTEST_PASSWORD` has no such moment.
pub(crate) fn take_arguments() -> Vec<std::ffi::OsString> {
    let words: Vec<_> = env::args_os().collect();
    let holds_password = words.iter().any(|word| word.to_string_lossy().contains('@'));
    if holds_password && wipe().is_none() {
        output::say("warning: the password stays visible in the process list; give it in ACIDTEST_PASSWORD");
    }
    words
}

/// Overwrites the arguments after the program's name. Their addresses are in `/proc/self/stat`, fields 48 and 49
/// (proc(5)).
fn wipe() -> Option<()> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // the second field, the program's name, may contain blanks: fields are counted from its closing parenthesis
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let begin: u64 = fields.get(48 - 3)?.parse().ok()?;
    let end: u64 = fields.get(49 - 3)?.parse().ok()?;
    let program = env::args_os().next()?.len() as u64 + 1;
    let first = begin.checked_add(program)?;
    let length = usize::try_from(end.checked_sub(first)?).ok()?;
    let mut memory = fs::OpenOptions::new().write(true).open("/proc/self/mem").ok()?;
    memory.seek(SeekFrom::Start(first)).ok()?;
    memory.write_all(&vec![0; length]).ok()
}
