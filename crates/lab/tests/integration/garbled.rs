//! Journals and notes that a fault of the disk, or somebody's hand, may have changed.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use acidtest_lab::{Lab, Lifetime, MemberSpec};
use acidtest_model::{Address, Durability, Role};
use acidtest_testbed::wanted;
use proptest::{prelude::*, sample::Index, test_runner::TestRunner};

/// Every file that the lab itself has written under a folder: its journals and notes.
fn written(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(folder).unwrap().flat_map(|entry| {
        let path = entry.unwrap().path();
        let journal = path.join("lab.json");
        [path, journal].into_iter().filter(|path| path.is_file())
    });
    files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn member(role: Role) -> MemberSpec<'static> {
    MemberSpec::server(role, "redis", Durability::None)
}

/// Changed journals and notes are listed as far as they can be read.
#[test]
fn journals_and_notes_that_were_changed_do_no_harm() {
    if !wanted("redis") {
        return;
    }
    // the servers' user must be able to pass through
    let passable = fs::Permissions::from_mode(0o711);
    let folder = tempfile::Builder::new().prefix("lab-").permissions(passable).tempdir().unwrap();
    let lab = Lab::at(folder.path()).unwrap();
    let server = lab.deploy("redis", &[Role::Server, Role::Locks].map(member), Lifetime::Run).unwrap();
    let kept = lab.folder("sqlite", Lifetime::Kept).unwrap();
    let address = Address::parse("postgres://ann@example.org:5432/shop").unwrap();
    let _note = lab.note_namespace(&address, "postgres", "acidtest", "run 1").unwrap();
    let files = written(folder.path());
    assert_eq!((files.len(), lab.list().unwrap().len()), (3, 2), "{files:?}");

    let change = (any::<Index>(), any::<Index>(), any::<u8>(), 0..4_u8);
    let numbers = ["0", "-1", "4294967295", "18446744073709551615", "1e300"];
    let mut runner = TestRunner::new(ProptestConfig::with_cases(256));
    let garbled = runner.run(&prop::collection::vec(change, 1..5), |changes| {
        for (which, at, byte, how) in changes {
            let (path, sound) = &files[which.index(files.len())];
            let mut bytes = sound.clone();
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => bytes.truncate(at),
                // turns the next number into another one
                _ => {
                    let digits = |from: usize| bytes[from..].iter().position(u8::is_ascii_digit);
                    if let Some(start) = digits(at).map(|found| at + found) {
                        let length = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                        let number = numbers[usize::from(byte) % numbers.len()];
                        bytes.splice(start..start + length, number.bytes());
                    }
                }
            }
            fs::write(path, bytes).unwrap();
        }
        prop_assert!(lab.list().unwrap().len() <= 2);
        prop_assert!(lab.namespaces().unwrap().len() <= 1);
        for (path, sound) in &files {
            fs::write(path, sound).unwrap();
        }
        Ok(())
    });
    garbled.unwrap();
    drop((server, kept));
}
