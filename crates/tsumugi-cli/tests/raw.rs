//! `tsumugi perf` of the transports that are bare frames (raw-xdp, raw-write), between two nodes of a lab. Needs root.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tsumugi_lab::testing::{Watched, as_root};
use tsumugi_lab::{Lab, LabGuard, Spec};
use tsumugi_rail::xdp::WriteTarget;
use tsumugi_rail::xsk::Redirect;

const TSUMUGI: &str = env!("CARGO_BIN_EXE_tsumugi");

const XDP: &str = "raw-xdp";
const WRITE: &str = "raw-write";

/// A server on node 1 of a lab.
struct Server {
    // Ends before its node goes.
    process: Child,
    port: String,
    lab: LabGuard,
    _watched: Watched,
}

impl Server {
    /// `None`, after saying so, where there can be none.
    fn start(test: &str, mtu: u32) -> Option<Server> {
        let missing = "needs a build with the XDP programs (clang and libbpf-dev)";
        let is_compiled = Redirect::IS_COMPILED && WriteTarget::IS_COMPILED;
        let watched = as_root(test, (!is_compiled).then_some(missing))?;
        let lab = Lab::up(&Spec { mtu, ..Spec::unique("raw") }).expect("the lab is made").guarded();
        let (process, port) = serve(&lab);
        Some(Server { process, port, lab, _watched: watched })
    }

    fn client(&self, port: &str, transport: &str, metric: &str, options: &[&str]) -> Command {
        let host = format!("{}:{port}", self.lab.nodes()[1].nics[0].address);
        let mut command = self.lab.command(0, TSUMUGI).expect("enters");
        // Silence is no measure on a machine that is busy with other tests.
        let common = ["--transport", transport, "--json", "--rounds", "1", "--timeout", "60"];
        command.args(["perf", metric, &host]).args(common).args(options);
        command
    }

    fn perf(&self, transport: &str, metric: &str, options: &[&str]) -> Output {
        self.client(&self.port, transport, metric, options).output().expect("it runs")
    }

    fn rows(&self, transport: &str, metric: &str, options: &[&str]) -> Vec<serde_json::Value> {
        let output = self.perf(transport, metric, options);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{transport} {metric} {options:?}: {said}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        json["rows"].as_array().expect("rows").clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts a server on node 1; its port.
fn serve(lab: &Lab) -> (Child, String) {
    let mut command = lab.command(1, TSUMUGI).expect("enters");
    let process = command.args(["perf", "serve", "--port", "0"]).stdout(Stdio::piped()).spawn();
    let mut process = process.expect("the server starts");
    let port = port_of(&mut process);
    (process, port)
}

/// What a server says that its port is.
fn port_of(server: &mut Child) -> String {
    let mut line = String::new();
    let stdout = server.stdout.as_mut().expect("a pipe");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    let port = line.split_once("port ").and_then(|(_, rest)| rest.split(' ').next());
    port.unwrap_or_else(|| panic!("no port in {line:?}")).to_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_metric_in_both_modes() {
    let Some(server) = Server::start("every_metric_in_both_modes", 1500) else { return };
    for mode in ["native", "generic"] {
        for (transport, metric, key) in [
            (XDP, "latency", "p50_ns"),
            (XDP, "bandwidth", "gbit_s"),
            (XDP, "rate", "per_s"),
            (XDP, "overhead", "send_ns"),
            (XDP, "idle", "cpu_share"),
            (WRITE, "latency", "p50_ns"),
        ] {
            let rows = server.rows(transport, metric, &["--mode", mode, "--time", "0.02"]);
            let row = &rows[0];
            assert_eq!((&row["transport"], &row["mode"]), (&transport.into(), &mode.into()), "{row}");
            assert!(row[key].as_f64().is_some_and(|figure| figure >= 0.0), "{row}");
            assert!(!row.to_string().contains("null"), "{row}");
        }
    }
}

#[test]
fn what_a_frame_does_not_carry_is_left_out() {
    let Some(server) = Server::start("what_a_frame_does_not_carry_is_left_out", 9000) else { return };
    // A write has ten bytes more of headers.
    for (transport, most) in [(XDP, 3494), (WRITE, 3484)] {
        let sizes = format!("1,8,64,{most},{},1M", most + 1);
        let output = server.perf(transport, "latency", &["--count", "20", "--size", &sizes]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        let rows = json["rows"].as_array().expect("rows").iter();
        let sizes: Vec<u64> = rows.filter_map(|row| row["size_bytes"].as_u64()).collect();
        assert_eq!(sizes, [1, 8, 64, most]);
        let said = text(&output.stderr);
        assert!(said.contains(&format!("left out: {} B, 1 MiB", most + 1)), "{said}");
        assert!(said.contains(&format!("{most} bytes on nic0")), "{said}");
        let output = server.perf(transport, "latency", &["--size", &(most + 1).to_string()]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    }
    // A stream carries any size, in full frames.
    let rows = server.rows(XDP, "bandwidth", &["--size", "60,1M", "--time", "0.02", "--in-flight", "1M"]);
    assert_eq!(rows.len(), 2);
}

#[test]
fn a_nic_that_is_taken_is_explained_and_a_killed_client_frees_it() {
    let Some(server) = Server::start("a_nic_that_is_taken_is_explained", 1500) else { return };
    let mut other = server.client(&server.port, WRITE, "latency", &["--time", "3000", "--mode", "generic"]);
    let mut other = other.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let attached = |node| {
        let mut command = server.lab.command(node, "ip").expect("enters");
        let output = command.args(["link", "show", "nic0"]).output().expect("ip runs");
        text(&output.stdout).contains("xdpgeneric")
    };
    let wait = |so: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !so() {
            assert!(start.elapsed() < Duration::from_secs(60), "it does not come");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    wait(&|| attached(0) && attached(1));
    // The server has its hands full; another one would be free.
    let (mut second, port) = serve(&server.lab);
    for (transport, mode) in [(XDP, "native"), (XDP, "generic"), (WRITE, "native"), (WRITE, "generic")] {
        let output = server.client(&port, transport, "latency", &["--mode", mode]).output().expect("it runs");
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        let on = format!("{transport} on nic0");
        assert!(said.contains(&on) && said.contains("another XDP program"), "{said}");
    }
    second.kill().expect("our own child");
    second.wait().expect("it ends");
    other.kill().expect("our own child");
    other.wait().expect("it ends");
    wait(&|| !attached(0) && !attached(1));
}

#[test]
fn loopback_is_no_link() {
    for transport in [XDP, WRITE] {
        let mut server = Command::new(TSUMUGI)
            .args(["perf", "serve", "--port", "0", "--once"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let host = format!("127.0.0.1:{}", port_of(&mut server));
        let output =
            Command::new(TSUMUGI).args(["perf", "latency", &host, "--transport", transport]).output();
        let output = output.expect("it runs");
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("Ethernet NIC"), "{}", text(&output.stderr));
        server.wait().expect("it ends");
    }
}
