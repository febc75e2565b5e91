//! The machine's clock may jump: what is stored, how long things wait, and who may send follow from it only where they
//! must.

use std::{fs, path::Path, process::Command};

use super::{
    JSON,
    database::entries,
    running::{Gateway, Sink, entry, until},
};

/// Stands before the C library's clock, and moves the time of day by as many seconds as a file says.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    long result = syscall(SYS_clock_gettime, clock, now), seconds = 0;
    FILE *file = clock == CLOCK_REALTIME ? fopen(getenv("JUMP"), "r") : NULL;
    if (file) {
        if (fscanf(file, "%ld", &seconds) == 1) now->tv_sec += seconds;
        fclose(file);
    }
    return (int)result;
}
"#;

/// Makes the library, and returns its path.
fn library(folder: &Path) -> String {
    let (source, made) = (folder.join("clock.c"), folder.join("clock.so"));
    fs::write(&source, CLOCK).unwrap();
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&made).arg(&source).output().unwrap();
    assert!(compiled.status.success(), "{compiled:?}");
    made.display().to_string()
}

#[test]
fn a_clock_that_jumps_ends_tokens_and_nothing_else() {
    let folder = tempfile::TempDir::new().unwrap();
    let jump = folder.path().join("jump");
    fs::write(&jump, "0").unwrap();
    let environment = [("LD_PRELOAD", library(folder.path())), ("JUMP", jump.display().to_string())];
    let sink = Sink::start("sqlite");
    let gateway = Gateway::start_in(&environment, &["--sink", &sink.text(), "--remember", "1h"]);
    let short = gateway.add_user("short", &["--expires", "1h"]);
    let post = |token: &str, id: &str| gateway.http().post(token, JSON, &entry(id, "a")).unwrap().status;
    assert_eq!((post(&gateway.token, "1"), post(&short, "1")), (202, 202));
    // two hours forward, a month back, and to where it was
    for (round, (seconds, of_short)) in [("7200", 401), ("-2592000", 202), ("0", 202)].into_iter().enumerate()
    {
        fs::write(&jump, seconds).unwrap();
        until("the token is good as long as the clock says so", || post(&short, "1") == of_short);
        assert_eq!(post(&gateway.token, &format!("after-{round}")), 202);
        // nothing waits for a time that does not come
        gateway.wait_until_stored();
        let metrics = gateway.metrics();
        let oldest =
            metrics.lines().find_map(|line| line.strip_prefix("acidtest_gateway_queue_oldest_seconds "));
        assert!(oldest.unwrap().parse::<f64>().unwrap() < 60.0, "{metrics}");
    }
    let stored = entries(&sink.address());
    let of_ann = stored.iter().filter(|row| row.user == "ann").count();
    assert_eq!((of_ann, stored.len()), (4, 5));
    assert_eq!(gateway.stop().0, Some(0));
}
