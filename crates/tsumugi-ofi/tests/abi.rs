//! What src/abi declares against libfabric's headers: a C compiler is asked for the size, offset and type of
//! every field, the type of every function and the value of every constant that the macros have recorded.
//!
//! Needs the headers of version 1.17 or later (apt-get install libfabric-dev); in later ones a struct may be
//! longer. `C_INCLUDE_PATH=DIR` has it look at others than the installed ones.

use std::fmt::Write as _;
use std::io::Write as _;
use std::iter::Peekable;
use std::path::Path;
use std::process::{Command, Stdio};
use tsumugi_fi::abi::declare::{Constant, Field, Function, Struct};
use tsumugi_fi::abi::{CONSTANTS, FUNCTIONS, STRUCTS};

/// The version whose layout is declared.
const DECLARED: (u64, u64) = (1, 17);
/// Structs that are only pointed to.
const OPAQUE: [&str; 3] = ["fid_av_set", "fi_av_set_attr", "fi_collective_attr"];
/// Unions, which have no name in C. The size of the field is compared in any case.
const UNIONS: [&str; 2] = ["fi_bus_attr_attr", "fi_mr_attr_device"];
const HEADERS: &str = "#include <stddef.h>
#include <stdio.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>
";

/// Something that C and Rust must agree on.
struct Question {
    what: String,
    /// The C expression for it.
    c: String,
    /// What it is in Rust.
    ours: u64,
    /// Whether it may be more in later versions.
    grows: bool,
}

fn ask(what: String, c: String, ours: u64, grows: bool) -> Question {
    Question { what, c, ours, grows }
}

fn is_struct(name: &str) -> bool {
    OPAQUE.contains(&name) || STRUCTS.iter().copied().flatten().any(|known| known.name == name)
}

fn about_struct(declared: &Struct) -> Vec<Question> {
    let name = declared.name;
    let size = ask(format!("size of {name}"), format!("sizeof(struct {name})"), declared.bytes as u64, true);
    let fields = declared.fields.iter().flat_map(|field| about_field(name, field));
    std::iter::once(size).chain(fields).collect()
}

fn about_field(of: &str, declared: &Field) -> Vec<Question> {
    let name = declared.name.trim_start_matches("r#");
    let c_field = format!("((struct {of} *)0)->{name}");
    // C has no size for an array without one.
    let c_size = if declared.bytes == 0 { "0".to_owned() } else { format!("sizeof({c_field})") };
    let offset = declared.offset_bytes as u64;
    let mut questions = vec![
        ask(format!("offset of {of}.{name}"), format!("offsetof(struct {of}, {name})"), offset, false),
        ask(format!("size of {of}.{name}"), c_size, declared.bytes as u64, is_struct(declared.kind)),
    ];
    if !UNIONS.contains(&declared.kind) && declared.bytes != 0 {
        questions.push(same_type(format!("type of {of}.{name}"), &c_field, declared.kind));
    }
    questions
}

fn about_constant(declared: &Constant) -> Question {
    let name = declared.name;
    ask(format!("value of {name}"), format!("(unsigned long long)({name})"), declared.value, false)
}

fn about_function(declared: &Function) -> Question {
    let name = declared.name.strip_suffix("_fn").expect("the type of a function ends in _fn");
    same_type(format!("type of {name}"), &format!("&{name}"), declared.kind)
}

fn same_type(what: String, c: &str, rust: &str) -> Question {
    let kind = c_type(rust);
    ask(what, format!("__builtin_types_compatible_p(__typeof__({c}), {kind})"), 1, false)
}

/// A Rust type as C writes it, in a form that may stand wherever a type's name may.
fn c_type(rust: &str) -> String {
    let mut tokens = tokens(rust).into_iter().peekable();
    let kind = parse(&mut tokens);
    assert_eq!(tokens.next(), None, "behind the type in {rust}");
    kind
}

/// Words, numbers, `->`, `...` and single signs.
fn tokens(rust: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut within = false;
    for sign in rust.chars() {
        let word = sign.is_alphanumeric() || sign == '_';
        let last = tokens.last_mut();
        match last {
            Some(last) if within && word => last.push(sign),
            Some(last) if (last == "-" && sign == '>') || (last.starts_with('.') && sign == '.') => {
                last.push(sign);
            }
            _ if !sign.is_whitespace() => tokens.push(sign.to_string()),
            _ => {}
        }
        within = word;
    }
    tokens
}

fn parse(tokens: &mut Peekable<impl Iterator<Item = String>>) -> String {
    let first = tokens.next().expect("a type");
    match first.as_str() {
        "*" => {
            let constant = if tokens.next().as_deref() == Some("const") { "const " } else { "" };
            format!("__typeof__({constant}{} *)", parse(tokens))
        }
        "[" => {
            let element = parse(tokens);
            expect(tokens, &[";"]);
            let length = tokens.next().expect("a length");
            expect(tokens, &["]"]);
            format!("__typeof__({element}[{length}])")
        }
        "Option" => {
            expect(tokens, &["<"]);
            let inner = parse(tokens);
            tokens.next_if(|token| token == ",");
            expect(tokens, &[">"]);
            inner
        }
        "unsafe" => parse_function(tokens),
        name => c_name(name),
    }
}

/// The rest of `unsafe extern "C" fn(name: type, …) -> type`.
fn parse_function(tokens: &mut Peekable<impl Iterator<Item = String>>) -> String {
    expect(tokens, &["extern", "\"", "C", "\"", "fn", "("]);
    let mut arguments = Vec::new();
    while tokens.peek().is_some_and(|token| token != ")") {
        if tokens.next_if(|token| token == "...").is_some() {
            arguments.push("...".to_owned());
        } else {
            tokens.next();
            expect(tokens, &[":"]);
            arguments.push(parse(tokens));
        }
        tokens.next_if(|token| token == ",");
    }
    expect(tokens, &[")"]);
    let returned = match tokens.next_if(|token| token == "->") {
        Some(_) => parse(tokens),
        None => "void".to_owned(),
    };
    let arguments = if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
    format!("__typeof__({returned} (*)({arguments}))")
}

fn expect(tokens: &mut impl Iterator<Item = String>, expected: &[&str]) {
    for token in expected {
        assert_eq!(tokens.next().as_deref(), Some(*token), "in a type");
    }
}

fn c_name(rust: &str) -> String {
    match rust {
        "c_void" => "void".to_owned(),
        "c_char" => "char".to_owned(),
        "c_int" => "int".to_owned(),
        "u8" | "u16" | "u32" | "u64" => format!("uint{}_t", &rust[1..]),
        "usize" => "size_t".to_owned(),
        "isize" => "ssize_t".to_owned(),
        "iovec" | "pollfd" => format!("struct {rust}"),
        // Without arguments here in the sense of old C: it matches any.
        "fi_unsupported" => "__typeof__(ssize_t (*)())".to_owned(),
        "fi_addr_t" | "fid_t" | "pthread_mutex_t" | "pthread_cond_t" => rust.to_owned(),
        name if is_struct(name) => format!("struct {name}"),
        name => format!("enum {name}"),
    }
}

/// The installed headers' version and what their compiler answers, or `None` if there is none, aloud.
fn answers(program: &str, questions: &[Question]) -> Option<((u64, u64), Vec<u64>)> {
    let flags = Command::new("pkg-config").args(["--cflags", "libfabric"]).output();
    let flags = flags.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    // C17 and earlier: functions of which no arguments are known.
    let compiler = || {
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-w", "-x", "c", "-"]).args(flags.split_whitespace());
        compiler
    };
    if !with_input(compiler().arg("-E"), "#include <rdma/fabric.h>\n") {
        let why = "no C compiler, or no headers of libfabric: apt-get install gcc libfabric-dev";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}; CI skips nothing");
        // Not eprintln!: the test harness would keep that to itself, since the test passes.
        writeln!(std::io::stderr(), "SKIPPED: tests/abi.rs: {why}").expect("writing to stderr");
        return None;
    }
    let mut source = format!("{HEADERS}static const unsigned long long answers[] = {{\n");
    for Question { c, .. } in questions {
        writeln!(source, "{c},").expect("writing to a string");
    }
    source.push_str("FI_MAJOR_VERSION, FI_MINOR_VERSION};\nint main(void) {\n");
    source.push_str("for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++)\n");
    source.push_str("printf(\"%llu\\n\", answers[i]);\nreturn 0;\n}\n");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(program);
    assert!(with_input(compiler().arg("-o").arg(&program).stderr(Stdio::inherit()), &source), "compiling");
    let run = Command::new(&program).output().expect("running the C program");
    let text = String::from_utf8(run.stdout).expect("numbers");
    let mut answers: Vec<u64> = text.lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(answers.len(), questions.len() + 2);
    let (minor, major) = (answers.pop()?, answers.pop()?);
    Some(((major, minor), answers))
}

/// Whether a command succeeds.
fn with_input(command: &mut Command, input: &str) -> bool {
    let Ok(mut child) = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn() else { return false };
    let written = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait().is_ok_and(|status| status.success()) && written.is_ok()
}

/// Every answer that is another than ours.
fn differences(questions: &[Question], answers: &[u64], version: (u64, u64)) -> Vec<String> {
    let mut differences = Vec::new();
    for (Question { what, ours, grows, .. }, theirs) in questions.iter().zip(answers) {
        let grown = version > DECLARED && *grows && theirs > ours;
        if theirs != ours && !grown {
            differences.push(format!("{what}: {ours} here, {theirs} in C"));
        }
    }
    differences
}

#[test]
fn c_has_the_same_layout_types_and_values() {
    let mut questions: Vec<_> = STRUCTS.iter().copied().flatten().flat_map(about_struct).collect();
    questions.extend(CONSTANTS.iter().copied().flatten().map(about_constant));
    questions.extend(FUNCTIONS.iter().copied().flatten().map(about_function));
    let Some((version, answers)) = answers("abi", &questions) else { return };
    assert!(version >= DECLARED, "headers of version {version:?}");
    let differences = differences(&questions, &answers, version);
    assert!(differences.is_empty(), "headers of version {version:?}:\n{}", differences.join("\n"));
}

#[test]
fn what_is_wrong_is_noticed() {
    const CONTEXT: Field = Field { name: "context", offset_bytes: 9, bytes: 4, kind: "*const c_void" };
    let mut questions = about_struct(&Struct { name: "fid", bytes: 16, fields: &[CONTEXT] });
    questions.push(about_constant(&Constant { name: "FI_MSG", value: 1 }));
    let wrong = "unsafe extern \"C\" fn(errnum: u64) -> *const c_char";
    questions.push(about_function(&Function { name: "fi_strerror_fn", kind: wrong }));
    // One argument too few, and two that have changed places.
    for kind in [
        "Option<unsafe extern \"C\" fn(cq: *mut fid_cq, buf: *mut c_void) -> isize>",
        "Option<unsafe extern \"C\" fn(cq: *mut fid_cq, count: usize, buf: *mut c_void) -> isize>",
    ] {
        questions.push(same_type("fi_cq_read".to_owned(), "((struct fi_ops_cq *)0)->read", kind));
    }
    let Some((version, answers)) = answers("abi_wrong", &questions) else { return };
    let differences = differences(&questions, &answers, DECLARED);
    assert_eq!(differences.len(), questions.len(), "{version:?}: {differences:?}");
}

#[test]
fn nothing_is_declared_without_a_record() {
    let recorded = ["STRUCTS:", "CONSTANTS:", "FUNCTIONS:"];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/abi");
    for file in std::fs::read_dir(folder).expect("the folder").map(|file| file.expect("a file").path()) {
        if file.ends_with("declare.rs") {
            continue;
        }
        // What the macros declare is indented.
        for line in std::fs::read_to_string(&file).expect("a text").lines() {
            let rest = ["pub const ", "pub struct "].iter().find_map(|start| line.strip_prefix(start));
            let name = rest.and_then(|rest| rest.split(' ').next()).filter(|name| *name != "fn");
            let known = name.is_none_or(|name| recorded.contains(&name) || OPAQUE.contains(&name));
            assert!(known, "{}: {line}: is for structs! or constants!", file.display());
        }
    }
}
