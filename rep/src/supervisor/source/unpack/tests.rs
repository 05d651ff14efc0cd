use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use tar::{Builder, Header};

use super::*;

/// Returns an archive with these entries: their kind, their path, and their content or target.
fn archive(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (kind, path, text) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o6755);
        // not `set_path`, which would reject what is to be rejected here
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        let content = match kind {
            EntryType::Symlink | EntryType::Link => {
                header.as_old_mut().linkname[..text.len()].copy_from_slice(text.as_bytes());
                ""
            }
            _ => *text,
        };
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Unpacks this into a new directory, which has a file `beside` next to it.
fn unpacked(blob: &[u8], most_bytes: u64) -> (tempfile::TempDir, PathBuf, Result<(), String>) {
    let home = tempfile::tempdir().unwrap();
    let into = home.path().join("instance");
    fs::create_dir(&into).unwrap();
    fs::write(home.path().join("beside"), "untouched").unwrap();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(blob).unwrap();
    file.rewind().unwrap();
    let done = unpack(file, &into, most_bytes);
    let beside = fs::read_to_string(home.path().join("beside")).unwrap();
    assert_eq!(beside, "untouched");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
    (home, into, done)
}

fn refused(entries: &[(EntryType, &str, &str)]) -> String {
    let (_home, _, done) = unpacked(&archive(entries), 1 << 20);
    done.unwrap_err()
}

const FILE: EntryType = EntryType::Regular;
const DIRECTORY: EntryType = EntryType::Directory;
const LINK: EntryType = EntryType::Symlink;
const NAME: EntryType = EntryType::Link;

#[test]
fn files_directories_and_links_are_unpacked() {
    let tar = archive(&[
        (DIRECTORY, "./", ""),
        (DIRECTORY, "bin/", ""),
        (FILE, "bin/web", "program"),
        (FILE, "no/entry/for/these", "deep"),
        (LINK, "current", "no/entry"),
        (LINK, "no/up", "../bin/web"),
        (NAME, "again", "bin/web"),
        (EntryType::Fifo, "fifo", ""),
        (EntryType::Char, "device", ""),
        (EntryType::XGlobalHeader, "pax_global_header", ""),
    ]);
    for blob in [tar.clone(), gzip(&tar)] {
        let (_home, into, done) = unpacked(&blob, 1 << 20);
        assert_eq!(done, Ok(()));
        let text = |path: &str| fs::read_to_string(into.join(path)).unwrap();
        assert_eq!(text("bin/web"), "program");
        assert_eq!(
            (text("current/for/these"), text("no/up")),
            ("deep".into(), "program".into())
        );
        assert_eq!(text("again"), "program");
        let mode = |path: &str| into.join(path).metadata().unwrap().permissions().mode() & 0o7777;
        // without the set-user-ID and set-group-ID bits
        assert_eq!((mode("bin/web"), mode("bin")), (0o755, 0o755));
        for left_out in ["fifo", "device", "pax_global_header"] {
            assert!(!into.join(left_out).exists(), "{left_out}");
        }
    }
}

#[test]
fn anything_else_is_one_file() {
    for blob in [
        &b"#!/bin/sh\n"[..],
        b"",
        &[0; 2_000],
        &gzip(b"not an archive"),
    ] {
        let (_home, into, done) = unpacked(blob, 1 << 20);
        assert_eq!(done, Ok(()));
        assert_eq!(fs::read(into.join("source")).unwrap(), blob);
        let mode = into.join("source").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}

#[test]
fn nothing_is_written_outside() {
    for path in [
        "../beside",
        "a/../../beside",
        "/etc/vendue-test",
        "..",
        "a/..",
    ] {
        let why = refused(&[(FILE, path, "x")]);
        assert!(why.starts_with("run.source: the path "), "{path}: {why}");
    }
    // not through a link either, wherever it leads
    for (to, below) in [("inner", "link/x"), ("inner", "link/deeper/x")] {
        let why = refused(&[
            (DIRECTORY, "inner", ""),
            (LINK, "link", to),
            (FILE, below, "x"),
        ]);
        assert!(why.contains("is there already"), "{below}: {why}");
    }
    let why = refused(&[(LINK, "link", "inner"), (DIRECTORY, "link", "")]);
    assert!(why.contains("is there already"), "{why}");
}

#[test]
fn links_do_not_lead_out() {
    for (kind, to) in [
        (LINK, "../beside"),
        (LINK, "/etc/passwd"),
        (LINK, "inner/../../beside"),
        (LINK, "inner/.."),
        (NAME, "../beside"),
        (NAME, "/etc/passwd"),
        (NAME, "a/../../beside"),
    ] {
        let why = refused(&[(kind, "link", to)]);
        assert!(why.contains("leads out"), "{kind:?} {to}: {why}");
    }
    let why = refused(&[(LINK, "a/b", "../../beside")]);
    assert!(why.contains("leads out"), "{why}");
    // seen from the top directory, the same text would lead elsewhere
    let why = refused(&[(FILE, "f", ""), (LINK, "a/b", "../f"), (NAME, "c", "a/b")]);
    assert!(why.contains("leads out"), "{why}");
}

#[test]
fn no_path_is_unpacked_twice() {
    let why = refused(&[(FILE, "a", "1"), (FILE, "a", "2")]);
    assert_eq!(
        why,
        "run.source: \"a\" is there already; expected each path once in the archive, none behind a link, and none of run.secrets"
    );
}

#[test]
fn what_would_be_too_large_is_refused() {
    let tar = archive(&[(FILE, "a", &"x".repeat(600)), (FILE, "b", &"x".repeat(600))]);
    assert_eq!(unpacked(&tar, 1_200).2, Ok(()));
    assert!(unpacked(&tar, 1_199).2.unwrap_err().contains("disk_mb"));
    // however small it is while being fetched
    let zeros = "\0".repeat(1 << 20);
    let bomb = gzip(&archive(&[(FILE, "zeros", &zeros)]));
    assert!(bomb.len() < 10_000);
    assert!(unpacked(&bomb, 1 << 19).2.unwrap_err().contains("disk_mb"));
    // skipped entries count, too
    let bomb = gzip(&archive(&[(EntryType::Fifo, "fifo", &zeros)]));
    assert!(unpacked(&bomb, 1 << 19).2.unwrap_err().contains("disk_mb"));
    assert!(unpacked(&[1; 600], 599).2.unwrap_err().contains("disk_mb"));
    let deep = "a/".repeat(45) + "x";
    assert_eq!(unpacked(&archive(&[(FILE, &deep, "")]), 1).2, Ok(()));
}

#[test]
fn a_broken_archive_says_so() {
    let tar = archive(&[(FILE, "a", &"x".repeat(5_000))]);
    for cut_off in [&tar[..2_000], &gzip(&tar)[..60]] {
        let (_home, _, done) = unpacked(cut_off, 1 << 20);
        assert!(done.is_err() || cut_off.len() == 60, "{done:?}");
    }
    let mut wrong = tar.clone();
    wrong[0] = b'b';
    let why = unpacked(&wrong, 1 << 20).2.unwrap_err();
    assert!(why.starts_with("run.source: a broken archive: "), "{why}");
}
