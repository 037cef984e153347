//! `tsumugi perf` as scripts use it: real processes over loopback, exit codes, and what is on which stream.

use rustix::process::{Pid, Signal, kill_process};
use std::fs::Metadata;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const TSUMUGI: &str = env!("CARGO_BIN_EXE_tsumugi");

/// A running `perf serve`, killed when the test ends.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start(options: &[&str]) -> Server {
        Server::start_on("0", options)
    }

    fn start_on(port: &str, options: &[&str]) -> Server {
        let mut command = Command::new(TSUMUGI);
        command.args(["perf", "serve", "--port", port]).args(options);
        Server::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the server starts"))
    }

    fn of(mut process: Child) -> Server {
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
        let port = line.split_once("port ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        Server { process, port: port.unwrap_or_else(|| panic!("no port in {line:?}")) }
    }

    fn perf(&self, metric: &str, options: &[&str]) -> Output {
        perf(metric, &format!("127.0.0.1:{}", self.port), options)
    }

    fn interrupt(&self) {
        kill_process(Pid::from_child(&self.process), Signal::INT).expect("our own child");
    }
}

#[test]
fn a_server_that_is_killed_and_started_again_at_once_has_its_port() {
    let first = Server::start(&[]);
    let port = first.port.to_string();
    let mut server = first;
    for _ in 0..10 {
        // Killed, and not yet waited for: it may not have let go of anything.
        server.process.kill().expect("our own child");
        let next = Server::start_on(&port, &[]);
        assert_eq!(next.port.to_string(), port);
        server = next;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn perf(metric: &str, host: &str, options: &[&str]) -> Output {
    Command::new(TSUMUGI).args(["perf", metric, host]).args(options).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The only row of a `--json` run that went well.
fn row(output: &Output) -> serde_json::Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object on stdout");
    assert!(json["machine"]["kernel"].is_string(), "{json}");
    let rows = json["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 1);
    rows[0].clone()
}

#[test]
fn every_bare_transport_measures_every_metric() {
    let server = Server::start(&[]);
    for transport in ["tcp-spin", "tcp-block", "udp"] {
        for (metric, name, key) in [
            ("latency", "round_trip", "p50_ns"),
            ("bandwidth", "bandwidth", "gbit_s"),
            ("rate", "rate", "per_s"),
            ("overhead", "overhead", "send_ns"),
            ("idle", "idle", "cpu_share"),
            ("overlap", "overlap", "both_ns"),
        ] {
            // Silence is no measure on a machine that is busy with other tests.
            let common = ["--json", "--rounds", "1", "--time", "0.02", "--timeout", "60"];
            // A datagram of its usual size would be too long.
            let size: &[&str] = if metric == "overlap" { &["--size", "4K"] } else { &[] };
            let output = server.perf(metric, &[&common[..], &["--transport", transport], size].concat());
            let row = row(&output);
            assert_eq!((&row["transport"], &row["metric"]), (&transport.into(), &name.into()));
            assert!(row[key].as_f64().is_some_and(|figure| figure >= 0.0), "{row}");
            assert!(row.get("send").is_none() && row.get("wait").is_none(), "{row}");
            assert!(!row.to_string().contains("null"), "{row}");
        }
    }
}

#[test]
fn tsumugi_measures_every_metric_with_every_wait() {
    let server = Server::start(&[]);
    for wait in ["spin", "adaptive", "block"] {
        for (metric, key) in [
            ("latency", "p50_ns"),
            ("bandwidth", "cpu_ns_per_kib"),
            ("rate", "per_s"),
            ("overhead", "receive_ns"),
            ("idle", "cpu_share"),
            ("overlap", "transfer_ns"),
        ] {
            let common = ["--json", "--rounds", "1", "--time", "0.02", "--timeout", "60"];
            let output = server.perf(metric, &[&common[..], &["--wait", wait]].concat());
            let row = row(&output);
            assert_eq!(row["transport"], "tsumugi");
            assert!(row.get("spread").is_none(), "one round is no distance from itself: {row}");
            assert_eq!(row.get("cpu_ns_per_message").is_some(), metric == "rate", "{row}");
            let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
            let measured = &json["measured"];
            assert_eq!((&measured["rounds"], &measured["time_s"]), (&1.into(), &0.02.into()), "{measured}");
            let sides = measured["sides"].as_array().expect("sides");
            assert_eq!(sides.len(), 2, "{measured}");
            for side in sides {
                // As they came to be, not as they were chosen.
                assert_eq!((&side["send"][0], &side["receive"][0]), (&"udp".into(), &"socket".into()));
                assert_eq!((&side["wait"][0], &side["nics"][0]["name"]), (&wait.into(), &"lo".into()));
                assert!(side["nics"][0]["mtu_bytes"].as_u64() >= Some(1500), "{side}");
            }
            assert_eq!((&row["send"], &row["receive"]), (&"udp".into(), &"socket".into()));
            assert_eq!(row["wait"], wait);
            assert!(row[key].as_f64().is_some_and(|figure| figure >= 0.0), "{row}");
            assert_eq!(row.get("size_bytes").is_some(), metric != "idle", "{row}");
            assert!(row.get("faults").is_none() && row.get("repeat").is_none(), "{row}");
        }
    }
}

#[test]
fn faults_slow_tsumugi_down_and_lose_nothing() {
    let server = Server::start(&[]);
    for repeat in ["selective", "go-back-n"] {
        let faults = ["--faults", "loss=2%,dup=2%,reorder=5%,seed=3", "--repeat", repeat];
        let common = ["--json", "--rounds", "1", "--count", "64", "--size", "64K", "--timeout", "60"];
        let row = row(&server.perf("bandwidth", &[&common[..], &faults].concat()));
        assert_eq!(row["faults"], "loss=2%,dup=2%,reorder=5%,seed=3");
        assert_eq!(row.get("repeat").is_some(), repeat == "go-back-n", "{row}");
        assert!(row.get("lost_bytes").is_none(), "{row}");
    }
}

#[test]
fn in_place_streams_and_traces() {
    let server = Server::start(&["--wait", "adaptive"]);
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("trace.pcap");
    let trace_option = ["--trace", trace.to_str().expect("a path")];
    let common =
        ["--json", "--rounds", "1", "--count", "4", "--size", "64K", "--in-place", "--timeout", "60"];
    let row = row(&server.perf("bandwidth", &[&common[..], &trace_option].concat()));
    assert_eq!(row["setting"], "in place");
    let bytes = std::fs::read(&trace).expect("the trace");
    assert!(bytes.len() > 4 * 65_536, "{} bytes do not hold four messages", bytes.len());
    let tagged = self::row(&server.perf("bandwidth", &[&common[..], &["--model", "message"]].concat()));
    assert_eq!((&tagged["setting"], &tagged["model"]), (&"in place".into(), &"message".into()));
}

#[test]
fn every_programming_model_is_measured_as_channels_are() {
    let server = Server::start(&[]);
    let models = ["write", "message", "active-message", "stream"];
    let metrics = [
        ("latency", "p50_ns"),
        ("bandwidth", "gbit_s"),
        ("rate", "per_s"),
        ("overhead", "send_ns"),
        ("idle", "cpu_share"),
    ];
    for (model, (metric, key), size) in models.iter().flat_map(|model| {
        metrics.iter().flat_map(move |metric| ["8", "50K"].map(|size| (*model, *metric, size)))
    }) {
        // A stream goes on to the end of a batch: of short messages those are many.
        let size = if size == "8" && ["bandwidth", "rate"].contains(&metric) { "2K" } else { size };
        let common = ["--json", "--rounds", "1", "--time", "0.02", "--timeout", "60"];
        // Who waits for nothing waits for no size.
        let sized = if metric == "idle" { &[][..] } else { &["--size", size] };
        let output = server.perf(metric, &[&common[..], &["--model", model], sized].concat());
        let row = row(&output);
        assert_eq!(row["model"], model, "{row}");
        assert!(row[key].as_f64().is_some_and(|value| value >= 0.0), "{model} {metric} {size}: {row}");
    }
    for wrong in [["--model", "write", "--transport", "udp"], ["--model", "active-message", "--size", "100K"]]
    {
        let refused = server.perf("latency", &wrong);
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    }
}

#[test]
fn programming_models_are_shown_beside_each_other() {
    let server = Server::start(&[]);
    let quick = ["--rounds", "1", "--time", "0.02", "--timeout", "60", "--size", "2K,100K"];
    let json = server.perf("models", &[&quick[..], &["--json"]].concat());
    assert_eq!(json.status.code(), Some(0), "{}", text(&json.stderr));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("one JSON object");
    // Five models, two sizes, three metrics; active messages are not that long.
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(3 * (2 * 5 - 1)), "{json}");
    let shown = text(&server.perf("models", &quick).stdout);
    for word in ["one way", "overhead", "bandwidth", "active-message"] {
        assert!(shown.contains(word), "{shown}");
    }
}

#[test]
fn active_zero_copy_is_compared_with_the_handshake_at_both_paces() {
    let server = Server::start(&[]);
    // Counted, not timed: the lengths are the same ones each time.
    let quick = ["--rounds", "2", "--count", "64", "--timeout", "60", "--size", "2K,100K"];
    let json = server.perf("azc", &[&quick[..], &["--json"]].concat());
    assert_eq!(json.status.code(), Some(0), "{}", text(&json.stderr));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("one JSON object");
    let rows = json["rows"].as_array().expect("rows");
    // Two paces, two sizes, two protocols.
    assert_eq!(rows.len(), 8, "{json}");
    for (at, row) in rows.iter().enumerate() {
        let is_ours = at % 2 == 0;
        assert_eq!(row["protocol"], if is_ours { "active-zero-copy" } else { "rendezvous" }, "{row}");
        assert_eq!(row["one_by_one"].as_bool().unwrap_or(false), at < 4, "{row}");
        assert_eq!(row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), is_ours, "{row}");
        // Random lengths up to the size: half of it, on the average.
        let bits = row["gbit_s"].as_f64().unwrap_or(0.0) * 1e9 / row["per_s"].as_f64().unwrap_or(1.0);
        let share = bits / 8.0 / row["size_bytes"].as_f64().unwrap_or(1.0);
        assert!((0.2..0.8).contains(&share), "{share} of the size: {row}");
    }
    let shown = text(&server.perf("azc", &quick).stdout);
    assert!(shown.contains("eager and rendezvous") && shown.contains("ratio"), "{shown}");
    let refused = server.perf("rate", &["--protocol", "eager"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
}

#[test]
fn few_bytes_in_flight_slow_down_and_nothing_else() {
    let server = Server::start(&[]);
    for transport in ["tsumugi", "udp", "tcp-spin"] {
        let options =
            ["--rounds", "1", "--count", "100", "--size", "4K", "--in-flight", "256K", "--timeout", "60"];
        let row =
            row(&server.perf("bandwidth", &[&["--json", "--transport", transport], &options[..]].concat()));
        assert!(row["gbit_s"].as_f64().is_some_and(|figure| figure > 0.0), "{row}");
    }
}

#[test]
fn a_trace_that_cannot_be_written_is_explained() {
    let server = Server::start(&[]);
    let output = server.perf("latency", &["--trace", "/nonexistent/trace.pcap"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("/nonexistent/trace.pcap") && said.contains("No such file"), "{said}");
}

#[test]
fn a_message_of_many_mebibytes() {
    let server = Server::start(&[]);
    let options = ["--json", "--rounds", "1", "--count", "2", "--size", "48M", "--timeout", "60"];
    for metric in ["latency", "bandwidth"] {
        assert_eq!(row(&server.perf(metric, &options))["size_bytes"], 48 << 20);
    }
}

#[test]
fn counts_sizes_and_rounds_are_kept() {
    let server = Server::start(&[]);
    let output = server.perf(
        "latency",
        &["--json", "--transport", "tcp-block", "--count", "20", "--size", "1,1K..4K", "--rounds", "2"],
    );
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = json["rows"].as_array().expect("rows");
    let sizes: Vec<u64> = rows.iter().filter_map(|row| row["size_bytes"].as_u64()).collect();
    assert_eq!(sizes, [1, 1024, 2048, 4096]);
    assert!(rows.iter().all(|row| row["rounds"] == 2 && row["spread"].is_number()));
}

#[test]
fn without_json_there_is_a_table_and_progress_is_not_on_stdout() {
    let server = Server::start(&[]);
    let output = server.perf("latency", &["--transport", "tcp-block", "--count", "5", "--rounds", "1"]);
    let table = text(&output.stdout);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].contains("lo (MTU ") && lines[1].starts_with("1 round × 5 messages; Linux"), "{table}");
    // Five round trips have no 99th percentile, and one round no spread.
    let headings: Vec<&str> =
        lines[3].split("  ").filter(|heading| !heading.is_empty()).map(str::trim).collect();
    assert_eq!(headings, ["size", "min", "p50", "max", "round trips/s"], "{table}");
    assert_eq!(lines.len(), 5, "{table}");
}

#[test]
fn once_serves_one_client() {
    let mut server = Server::start(&["--once"]);
    let output = server.perf("latency", &["--transport", "udp", "--count", "5", "--rounds", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(server.process.wait().expect("it ends").code(), Some(0));
}

/// What a server has written to standard error, which is a file, while a client measured and one went away; started with these
/// options and with this environment. It is interrupted in the end.
fn log_of(options: &[&str], environment: impl Fn(&Metadata) -> Vec<(&'static str, String)>) -> String {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let mut command = Command::new(TSUMUGI);
    command.args(["perf", "serve", "--port", "0"]).args(options).stdout(Stdio::piped());
    command.stderr(file.reopen().expect("the file")).env_remove("TSUMUGI_LOG").env_remove("JOURNAL_STREAM");
    command.envs(environment(&file.as_file().metadata().expect("its number")));
    let mut server = Server::of(command.spawn().expect("the server starts"));
    row(&server.perf("latency", &["--json", "--size", "8", "--count", "5", "--rounds", "1"]));
    let mut stranger = TcpStream::connect(("127.0.0.1", server.port)).expect("connect");
    stranger.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("write");
    let _ = stranger.read_to_end(&mut Vec::new());
    server.interrupt();
    assert_eq!(server.process.wait().expect("it ends").code(), Some(130));
    std::fs::read_to_string(file.path()).expect("text")
}

#[test]
fn a_server_tells_whom_it_serves() {
    let log = log_of(&[], |_| Vec::new());
    let lines: Vec<&str> = log.lines().collect();
    let [measures, finished, stranger] = lines[..] else { panic!("{log}") };
    let whole = [
        "Z  INFO a client measures client=127.0.0.1:",
        "metric=\"round_trip\" transport=\"tsumugi\" bytes=8",
    ];
    assert!(whole.iter().all(|words| measures.contains(words)), "{measures}");
    assert!(finished.contains("INFO a client has finished client=127.0.0.1:"), "{finished}");
    assert!(
        stranger.contains(" WARN a client was given up: ") && stranger.contains("GET / HTTP"),
        "{stranger}"
    );
}

#[test]
fn the_journal_gets_priorities_and_the_librarys_lines_where_they_are_asked_for() {
    let journal = |file: &Metadata| vec![("JOURNAL_STREAM", format!("{}:{}", file.dev(), file.ino()))];
    let log = log_of(&["--log", "info"], journal);
    assert!(log.lines().all(|line| line.starts_with("<6>") || line.starts_with("<4>")), "{log}");
    for words in
        ["<6>endpoint 127.0.0.1:", "<6>connected peer=127.0.0.1:", "<6>the connection ended: it has closed"]
    {
        assert_eq!(log.matches(words).count(), 1, "{words}: {log}");
    }
    assert_eq!(log.matches("<4>").count(), 1, "the stranger alone: {log}");
    assert!(!log.contains("sign of life"), "{log}");
    // Another stream than the journal's, and another level.
    let elsewhere =
        |_: &Metadata| vec![("JOURNAL_STREAM", "1:1".to_owned()), ("TSUMUGI_LOG", "error".to_owned())];
    assert_eq!(log_of(&[], elsewhere), "");
}

#[test]
fn an_interrupted_server_ends_cleanly() {
    let mut server = Server::start(&[]);
    server.interrupt();
    assert_eq!(server.process.wait().expect("it ends").code(), Some(130));
}

#[test]
fn an_interrupted_client_ends_cleanly_and_its_server_goes_on() {
    let server = Server::start(&[]);
    let host = format!("127.0.0.1:{}", server.port);
    let mut client = Command::new(TSUMUGI)
        .args(["perf", "latency", &host, "--transport", "tcp-block", "--time", "3000"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let pid = Pid::from_child(&client);
    // Until it has taken the signal over, SIGINT would simply kill it: send it until it has ended.
    let status = loop {
        std::thread::sleep(Duration::from_millis(300));
        if let Some(status) = client.try_wait().expect("our own child") {
            break status;
        }
        kill_process(pid, Signal::INT).expect("our own child");
    };
    assert_eq!(status.code(), Some(130));
    let output = server.perf("latency", &["--transport", "tcp-block", "--count", "5", "--rounds", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_server_that_dies_ends_its_client_with_an_error() {
    for transport in ["tcp-spin", "udp", "tsumugi"] {
        let server = Server::start(&[]);
        let mut client = Command::new(TSUMUGI)
            .args(["perf", "latency", &format!("127.0.0.1:{}", server.port), "--time", "3000"])
            .args(["--transport", transport])
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        std::thread::sleep(Duration::from_millis(500));
        drop(server);
        let status = client.wait().expect("it ends by itself");
        assert_eq!(status.code(), Some(1), "{transport}");
        let mut said = String::new();
        client.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        assert!(said.contains("tsumugi: "), "{said}");
    }
}

#[test]
fn nobody_there_is_an_error_in_time() {
    // Bound and closed again: nobody listens there.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    let output = perf("latency", &format!("127.0.0.1:{port}"), &["--transport", "udp"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("tsumugi perf serve") && said.contains(&port.to_string()), "{said}");
}

#[test]
fn a_stranger_on_the_port_is_recognised() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let host = listener.local_addr().expect("address").to_string();
    let stranger = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        stream.write_all(b"SSH-2.0-OpenSSH\r\n").expect("write");
        let _ = stream.read(&mut [0; 4096]);
    });
    let output = perf("latency", &host, &["--transport", "tcp-spin"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("SSH-2.0"), "{}", text(&output.stderr));
    stranger.join().expect("stranger");
}

#[test]
fn a_client_of_another_version_is_told() {
    let server = Server::start(&[]);
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("connect");
    let request =
        r#"{"tsumugi_perf":99,"metric":"round_trip","transport":"udp","message_bytes":8,"silence_max_ms":1}"#;
    writeln!(stream, "{request}").expect("write");
    let mut reply = String::new();
    BufReader::new(&stream).read_line(&mut reply).expect("a reply");
    assert!(reply.contains("refused") && reply.contains("version 99"), "{reply}");
    // And nonsense ends only its own connection.
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("connect");
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("write");
    let output = server.perf("latency", &["--transport", "udp", "--count", "5", "--rounds", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// A server that begins a measurement and ends the control connection in its middle.
fn ending_server(end: impl FnOnce(TcpStream) + Send + 'static) -> (String, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let host = listener.local_addr().expect("address").to_string();
    let server = std::thread::spawn(move || {
        let (mut control, _) = listener.accept().expect("accept");
        BufReader::new(&control).read_line(&mut String::new()).expect("a request");
        let data = TcpListener::bind("127.0.0.1:0").expect("bind");
        let port = data.local_addr().expect("address").port();
        writeln!(control, r#"{{"ready":{{"port":{port}}}}}"#).expect("write");
        let (mut stream, _) = data.accept().expect("accept");
        let _ = stream.read(&mut [0; 4096]);
        end(control);
        // The data go on for as long as the client wants.
        while matches!(stream.read(&mut [0; 1 << 16]), Ok(1..)) {}
    });
    (host, server)
}

#[test]
fn a_client_whose_server_ends_without_a_word_says_where_to_look() {
    let (host, server) = ending_server(drop);
    let output = perf("bandwidth", &host, &["--transport", "tcp-block", "--time", "20"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains(&host) && said.contains("ended without a word"), "{said}");
    assert!(said.contains("`tsumugi perf serve`"), "{said}");
    server.join().expect("server");
}

#[test]
fn a_client_quotes_the_reason_of_its_server() {
    let (host, server) = ending_server(|mut control| {
        writeln!(control, r#"{{"refused":{{"why":"the loom is broken"}}}}"#).expect("write");
    });
    let output = perf("bandwidth", &host, &["--transport", "tcp-block", "--time", "20"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("the loom is broken"), "{}", text(&output.stderr));
    server.join().expect("server");
}

#[test]
fn a_server_says_why_it_ends_a_session_even_to_who_has_said_more_than_it_reads() {
    let server = Server::start(&[]);
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("connect");
    // Nothing of this is a request, and most of it will not be read.
    stream.write_all(&[&b"nonsense\n"[..], &[b'x'; 200_000]].concat()).expect("write");
    std::thread::sleep(Duration::from_millis(300));
    let mut reply = String::new();
    BufReader::new(&stream).read_line(&mut reply).expect("a reply");
    assert!(reply.contains("refused") && reply.contains("nonsense"), "{reply:?}");
}

#[test]
fn an_interrupted_server_says_so_to_its_client() {
    let server = Server::start(&[]);
    let client = Command::new(TSUMUGI)
        .args(["perf", "idle", &format!("127.0.0.1:{}", server.port), "--time", "3000"])
        .args(["--transport", "tcp-block"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    std::thread::sleep(Duration::from_millis(500));
    server.interrupt();
    let output = client.wait_with_output().expect("it ends by itself");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("interrupted"), "{}", text(&output.stderr));
}

#[test]
fn a_silent_stranger_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let host = listener.local_addr().expect("address").to_string();
    let start = Instant::now();
    let output = perf("latency", &host, &["--transport", "tcp-spin", "--timeout", "0.1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("said nothing"), "{}", text(&output.stderr));
    assert!(start.elapsed() >= Duration::from_millis(100));
}

#[test]
fn an_unknown_host_is_named() {
    let output = perf("latency", "no-such-host.invalid", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("unknown host `no-such-host.invalid`"), "{}", text(&output.stderr));
}

#[test]
fn a_port_that_is_taken_is_explained() {
    let server = Server::start(&[]);
    let port = server.port.to_string();
    let output = Command::new(TSUMUGI).args(["perf", "serve", "--port", &port]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--port"), "{}", text(&output.stderr));
}
