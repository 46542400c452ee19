//! The C headers and their Rust mirrors say the same.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use giveway_hints::slot::{HELD_MAX, NAME, OpenError, Reader, SLOT_SIZE, SOCKET, Table};
use giveway_hints::{INCLUDE_DIR, Tier, Weight};

/// Builds a C program against the headers; each call makes a file of its own,
/// since tests run at the same time.
fn build(name: &str, source: &str) -> PathBuf {
    static BUILT: AtomicU32 = AtomicU32::new(0);
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = dir.join(format!("{name}-{}", BUILT.fetch_add(1, Relaxed)));
    let file = program.with_extension("c");
    std::fs::write(&file, source).unwrap();
    let compiler = cc::Build::new()
        .opt_level(0)
        .target("x86_64-unknown-linux-gnu")
        .host("x86_64-unknown-linux-gnu")
        .get_compiler();
    let built = Command::new(compiler.path())
        .args([
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
            "-I",
            INCLUDE_DIR,
            "-o",
        ])
        .args([&program, &file])
        .status()
        .unwrap();
    assert!(built.success());
    program
}

/// A server's extension is compiled with these, and by us with -Werror.
#[test]
fn c_headers_raise_no_warning_of_a_server_s_build() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("warnings.c");
    std::fs::write(&file, "#include <giveway/hints.h>\n").unwrap();
    let clang = std::env::var("BPF_CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    let compiled = Command::new(clang)
        .args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror"])
        .args(["-Wmissing-prototypes", "-Wmissing-variable-declarations"])
        .args(["-Wpointer-arith", "-Wdeclaration-after-statement", "-Wvla"])
        .args(["-Wmissing-format-attribute", "-Wcast-function-type"])
        .args(["-Wshadow", "-Wimplicit-fallthrough", "-I", INCLUDE_DIR])
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{said}");
}

/// What it prints, as numbers.
fn numbers(program: &PathBuf) -> Vec<u64> {
    let output = Command::new(program).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect()
}

#[test]
fn c_header_has_the_constants_of_the_rust_mirror() {
    let program = build(
        "constants",
        r#"
#include <giveway/slot.h>
#include <giveway/tier.h>
#include <stdio.h>
int main(void) {
    printf("%d %d %d %d %d %d %d %d\n", GIVEWAY_TIER_BACKGROUND, GIVEWAY_TIER_TIME_SENSITIVE,
           GIVEWAY_TIER_DEFAULT,
           GIVEWAY_WEIGHT_MIN, GIVEWAY_WEIGHT_DEFAULT, GIVEWAY_WEIGHT_MAX,
           GIVEWAY_HELD_MAX, GIVEWAY_SLOT_SIZE);
    return 0;
}
"#,
    );
    let rust = [
        Tier::Background as u64,
        Tier::TimeSensitive as u64,
        Tier::DEFAULT as u64,
        Weight::MIN.get().into(),
        Weight::DEFAULT.get().into(),
        Weight::MAX.get().into(),
        HELD_MAX as u64,
        SLOT_SIZE as u64,
    ];
    assert_eq!(numbers(&program), rust);
}

/// A plain file with the layout of a table, as the C header lays it out.
fn table() -> tempfile::TempDir {
    let program = build(
        "table",
        r#"
#include <giveway/slot.h>
#include <stdio.h>
int main(int argc, char **argv) {
    static struct giveway_slot pages[8];
    struct giveway_header *header = (struct giveway_header *)pages;
    FILE *file = fopen(argv[argc - 1], "w");
    header->magic = GIVEWAY_TABLE_MAGIC;
    header->version = GIVEWAY_TABLE_VERSION;
    header->nr_slots = 8;
    return fwrite(pages, sizeof(pages), 1, file) != 1 || fclose(file);
}
"#,
    );
    let dir = tempfile::tempdir().unwrap();
    let made = Command::new(program).arg(dir.path().join(NAME)).status();
    assert!(made.unwrap().success());
    dir
}

/// What a C client has stored in `dir`, read by another C program through the
/// header's own offsets: tier, weight, domain, locks held, the last, awaited.
const READ: &str = r#"
#include <giveway/slot.h>
#include <stdio.h>
int main(int argc, char **argv) {
    static struct giveway_slot pages[8];
    FILE *file = fopen(argv[argc - 1], "r");
    int i;
    if (fread(pages, sizeof(pages), 1, file) != 1)
        return 1;
    printf("%llu ", ((struct giveway_header *)pages)->claims);
    for (i = 1; i < 8; i++)
        if (pages[i].version == GIVEWAY_SLOT_VERSION)
            printf("%u %u %llu %u %llu %llu ", pages[i].tier, pages[i].weight, pages[i].domain,
                   pages[i].locks.nheld, pages[i].locks.held[0].lock, pages[i].locks.wait);
    if (argc > 2)
        for (i = 1; i < 8; i++)
            if (pages[i].version == GIVEWAY_SLOT_VERSION)
                printf("%llu %u %u %llu %u %u ", pages[i].reader.held_addr,
                       pages[i].reader.lwlock_state_off, pages[i].reader.ev_group_xact,
                       pages[i].reader.my_proc_addr, pages[i].reader.proclock_link_off,
                       pages[i].reader.proc_pid_off);
    return 0;
}
"#;

fn read(dir: &tempfile::TempDir) -> Vec<u64> {
    read_with(dir, &[])
}

fn read_with(dir: &tempfile::TempDir, args: &[&str]) -> Vec<u64> {
    let program = build("read", READ);
    let path = dir.path().join(NAME);
    let output = Command::new(program).args(args).arg(path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect()
}

#[test]
fn rust_stores_are_where_c_looks_for_them() {
    let dir = table();
    let table = Table::open(Some(dir.path())).unwrap();
    let slot = table.attach().unwrap();
    slot.set_tier(Tier::TimeSensitive);
    slot.set_weight(Weight::try_from(300).unwrap());
    slot.set_domain(9);
    slot.hold(41);
    slot.wait(42);
    assert_eq!(read(&dir), [1, 2, 300, 9, 1, 41, 42]);
    slot.set_reader(&Reader {
        held_addr: 1,
        lwlock_state_off: 2,
        ev_group_xact: 3,
        my_proc_addr: 4,
        proclock_link_off: 5,
        proc_pid_off: 6,
        ..Reader::default()
    });
    assert_eq!(read_with(&dir, &["reader"])[7..], [1, 2, 3, 4, 5, 6]);
    slot.release(41);
    slot.wait_done();
    slot.reset_tier();
    assert_eq!(read(&dir), [1, 0, 300, 9, 0, 41, 0]);
    drop(slot);
    assert_eq!(read(&dir), [2]);
}

/// The C client: attaches, says, forks; the child has no slot until it attaches.
#[test]
fn the_c_client_stores_the_same_and_a_child_starts_without_a_slot() {
    let dir = table();
    let program = build(
        "client",
        r#"
#include <giveway/hints.h>
#include <sys/wait.h>
int main(int argc, char **argv) {
    int status;
    giveway_set_tier(GIVEWAY_TIER_BACKGROUND);      /* nothing is open: nothing happens */
    if (giveway_hints_open("/nonexistent") != -ENOENT || giveway_hints_attach())
        return 1;
    if (giveway_hints_open(argv[argc - 1]) || !giveway_hints_attach())
        return 2;
    giveway_set_tier(GIVEWAY_TIER_BACKGROUND);
    giveway_set_weight(7);
    giveway_set_domain(8);
    giveway_hold(5);
    giveway_hold(6);
    giveway_release(5);
    giveway_wait(3);
    if (giveway_hints_attach() != giveway_my_slot())
        return 3;
    if (fork() == 0) {
        giveway_set_weight(1000);                   /* the parent's, if it were kept */
        if (giveway_my_slot() || !giveway_hints_attach())
            _exit(1);
        giveway_hints_detach();
        _exit(0);
    }
    wait(&status);
    return status;
}
"#,
    );
    let status = Command::new(program).arg(dir.path()).status().unwrap();
    assert!(status.success(), "{status}");
    // Three changes of claims; the slot is left to UFS, as by kill -9.
    assert_eq!(read(&dir), [3, 1, 7, 8, 1, 6, 3]);
}

/// The header must also serve C++ and many files of one program.
#[test]
fn the_c_examples_build() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/convoy.c");
    let program = build("convoy", &std::fs::read_to_string(example).unwrap());
    let output = Command::new(program).arg("10").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The tool by which PostgreSQL's tests make tables and play the daemon.
fn tool() -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../postgres/test/table.c");
    build("tool", &std::fs::read_to_string(source).unwrap())
}

/// A table of `slots` slots in a directory of its own.
fn table_of(slots: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let made = Command::new(tool())
        .arg("create")
        .arg(dir.path().join(NAME))
        .arg(slots.to_string())
        .status();
    assert!(made.unwrap().success());
    dir
}

/// Whatever another process writes to any word of page 0, while the client is
/// between any two of its calls, and whoever's the slots then are.
#[test]
fn a_header_that_anybody_writes_over_is_no_danger_to_a_client() {
    let dir = table_of(7);
    let program = build(
        "scribbled",
        r#"
#include <giveway/hints.h>

static int mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int count = 0;
    while (fgets(line, sizeof(line), maps))
        count += strstr(line, "giveway_slots") != NULL;
    fclose(maps);
    return count;
}

int main(int argc, char **argv) {
    static const unsigned int values[] = {0, 1, 2, 1000000, 1u << 30, 1u << 31, ~0u};
    char path[512];
    unsigned int *words, sound, i, v, slot;
    int fd, before;

    snprintf(path, sizeof(path), "%s/giveway_slots", argv[argc - 1]);
    fd = open(path, O_RDWR);
    words = (unsigned int *)mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (giveway_hints_open(argv[argc - 1]))
        return 2;
    before = mappings();
    for (i = 0; i < 1024; i++) {
        sound = words[i];
        for (v = 0; v < sizeof(values) / sizeof(*values); v++) {
            for (slot = 1; slot < 8; slot++)
                *(unsigned long long *)((char *)words + 4096 * slot) = 0;
            words[i] = values[v];
            if (!giveway_hints_attach())
                return 3;
            giveway_set_tier(GIVEWAY_TIER_BACKGROUND);
            if (giveway_hints_attach_for(1))
                giveway_slot_release(giveway_hints_attach_for(1));
            giveway_hints_detach();
        }
        words[i] = sound;
    }
    /* One that says it is replaced is not mapped again and again. */
    return mappings() == before ? 0 : 4;
}
"#,
    );
    let status = Command::new(program).arg(dir.path()).status().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn every_slot_of_a_table_can_be_claimed_from_c_and_is_found_from_rust() {
    let dir = table_of(1023);
    let program = build(
        "crowd",
        r#"
#include <giveway/hints.h>
int main(int argc, char **argv) {
    unsigned int claimed = 0;
    if (giveway_hints_open(argv[argc - 1]))
        return 1;
    while (claimed < 2000 && giveway_hints_attach_for(700 + 3 * claimed))
        claimed++;
    printf("%u\n", claimed);
    return 0;
}
"#,
    );
    let output = Command::new(program).arg(dir.path()).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "1023\n");
    let table = Table::open(Some(dir.path())).unwrap();
    assert_eq!(table.usage(), (1023, 1023));
    // One that gets free is found, wherever it is.
    assert_eq!(table.reclaim(|tid, _| tid != 3001), 1);
    assert!(table.attach().is_some());
}

/// A slot that another process has taken is noticed, and left to that process.
#[test]
fn a_client_notices_that_its_slot_was_taken_and_gets_another() {
    let dir = table();
    let program = build(
        "taken",
        r#"
#include <giveway/hints.h>
int main(int argc, char **argv) {
    struct giveway_slot *slot;
    if (giveway_hints_open(argv[argc - 1]) || !(slot = giveway_hints_attach()))
        return 1;
    if (!giveway_hints_attached())
        return 2;
    slot->owner = 4711;
    if (giveway_hints_attached())
        return 3;
    giveway_hints_detach();
    if (slot->owner != 4711 || slot->version != GIVEWAY_SLOT_VERSION)
        return 4;
    return !giveway_hints_attach() || giveway_my_slot() == slot || !giveway_hints_attached();
}
"#,
    );
    let status = Command::new(program).arg(dir.path()).status().unwrap();
    assert!(status.success(), "{status}");
}

/// A daemon in front of a directory that nobody may enter; it ends with this.
struct Daemon {
    process: Child,
    dir: tempfile::TempDir,
}

impl Daemon {
    /// `how`: as `listen` of the tool has it.
    fn new(how: &str) -> Daemon {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("closed")).unwrap();
        // Root may enter any directory; what is no file is refused to root as well.
        let name = dir.path().join("closed").join(NAME);
        assert!(Command::new("mkfifo").arg(name).status().unwrap().success());
        let (tool, file) = (tool(), dir.path().join("table"));
        let made = Command::new(&tool)
            .arg("create")
            .arg(&file)
            .arg("7")
            .status();
        assert!(made.unwrap().success());
        let socket = dir.path().join(SOCKET);
        let mut listen = Command::new(&tool);
        listen.arg("listen").arg(&socket).arg(how).arg(&file);
        let process = listen.spawn().unwrap();
        while !socket.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Daemon { process, dir }
    }

    fn closed(&self) -> PathBuf {
        self.dir.path().join("closed")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Opens at `dir` three times, waiting and not, and prints what that led to.
fn opened_from_c(dir: &Path) -> String {
    let program = build(
        "asks",
        r#"
#include <giveway/hints.h>
static const char *word(int result) {
    return result == 0 ? "mapped" : result == -EAGAIN ? "silent" : result == -EACCES ? "refused" :
           result == -EPROTO ? "garbage" : "other";
}
int main(int argc, char **argv) {
    int tries = 500;
    /* Without waiting: as often as a program comes by. */
    int result = giveway_hints_open_nowait(argv[argc - 1]);
    while (result == -EAGAIN && giveway_asking_ && tries-- > 0 && poll(NULL, 0, 1) == 0)
        result = giveway_hints_open_nowait(argv[argc - 1]);
    printf("%s ", word(result));
    printf("%s", word(giveway_hints_open(argv[argc - 1])));
    return 0;
}
"#,
    );
    let mut timed = Command::new("timeout");
    let output = timed.arg("20").arg(program).arg(dir).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_daemon_passes_the_table_on_and_one_that_does_not_keeps_nobody_waiting() {
    let expected = [
        ("answer", "mapped mapped"),
        ("deaf", "silent silent"),
        ("full", "silent silent"),
        ("close", "refused refused"),
    ];
    for (how, words) in expected {
        let daemon = Daemon::new(how);
        assert_eq!(opened_from_c(&daemon.closed()), words, "{how}");
        let before = Instant::now();
        let opened = Table::open(Some(&daemon.closed()));
        match words.split(' ').next() {
            Some("mapped") => assert!(opened.unwrap().attach().is_some()),
            Some("silent") => assert!(matches!(opened, Err(OpenError::Silent { .. }))),
            _ => assert!(matches!(opened, Err(OpenError::Forbidden { .. }))),
        }
        // Each waits for a second at most; the rest is for a busy machine.
        assert!(before.elapsed() < Duration::from_secs(10), "{how}");
    }
    // Who asks while it talks to another, or before it has begun, hears nothing.
    let daemon = Daemon::new("slow");
    let words = opened_from_c(&daemon.closed());
    assert!(!words.contains("mapped") && words.contains(' '), "{words}");
    assert!(Table::open(Some(&daemon.closed())).is_err());
}
