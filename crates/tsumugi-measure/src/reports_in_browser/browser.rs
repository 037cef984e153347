//! Chromium without a window, told what to do by its DevTools protocol over a pair of pipes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// What Debian, and others, call it.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// How many seconds it may run.
const SECONDS_MAX: &str = "120";

/// A browser; it ends when this is dropped.
pub(super) struct Browser {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Its settings, which nobody else has.
    _profile: TempDir,
    count: u64,
}

/// What a page is shown on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    Screen,
    Print,
}

/// A page in it.
pub(super) struct Page<'a> {
    browser: &'a mut Browser,
    session: String,
}

impl Browser {
    /// Starts one; `None` where there is none.
    pub(super) fn start() -> Option<Browser> {
        let folders = std::env::var_os("PATH")?;
        let mut files =
            std::env::split_paths(&folders).flat_map(|folder| NAMES.map(|name| folder.join(name)));
        let program = files.find(|file| file.is_file())?;
        let profile = tempfile::tempdir().expect("a folder");
        // The protocol is at descriptors 3 and 4.
        let mut process = Command::new("sh")
            .args(["-c", "exec timeout \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh", SECONDS_MAX])
            .arg(program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(["--remote-debugging-pipe", "about:blank"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let requests = process.stdin.take().expect("it was asked for");
        let answers = BufReader::new(process.stdout.take().expect("it was asked for"));
        Some(Browser { process, requests, answers, _profile: profile, count: 0 })
    }

    /// The next message.
    fn message(&mut self) -> Value {
        let mut message = Vec::new();
        self.answers.read_until(0, &mut message).expect("it can be read");
        assert_eq!(message.pop(), Some(0), "the browser has ended before it answered");
        serde_json::from_slice(&message).expect("JSON")
    }

    /// Calls a method of the protocol, and waits for what it returns.
    fn call(&mut self, session: Option<&str>, method: &str, parameters: Value) -> Value {
        self.count += 1;
        let mut request = json!({ "id": self.count, "method": method, "params": parameters });
        if let Some(session) = session {
            request["sessionId"] = session.into();
        }
        self.requests.write_all(format!("{request}\0").as_bytes()).expect("the browser listens");
        loop {
            let mut message = self.message();
            if message["id"] == self.count {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].take();
            }
        }
    }

    /// Opens a file, in place of what was open before.
    pub(super) fn open(&mut self, file: &Path) -> Page<'_> {
        let targets = self.call(None, "Target.getTargets", json!({}));
        let targets = targets["targetInfos"].as_array().expect("a list");
        let target = targets.iter().find(|target| target["type"] == "page").expect("a page");
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call(None, "Target.attachToTarget", target);
        let session = attached["sessionId"].as_str().expect("a session").to_owned();
        let mut page = Page { browser: self, session };
        page.call("Page.enable", json!({}));
        page.call("Page.navigate", json!({ "url": format!("file://{}", file.display()) }));
        while page.browser.message()["method"] != "Page.loadEventFired" {}
        page
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends with its pipe; what it was started by ends with it.
        let _ = self.requests.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let _ = self.process.wait();
    }
}

impl Page<'_> {
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.browser.call(Some(&self.session), method, parameters)
    }

    /// Shows it at a width in pixels, by day or by night.
    pub(super) fn show(&mut self, width: u32, is_dark: bool, medium: Medium) {
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let theme = if is_dark { "dark" } else { "light" };
        let media = json!({
            "media": if medium == Medium::Print { "print" } else { "screen" },
            "features": [{ "name": "prefers-color-scheme", "value": theme }],
        });
        self.call("Emulation.setEmulatedMedia", media);
    }

    /// What an expression is in the page.
    pub(super) fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true });
        let mut evaluated = self.call("Runtime.evaluate", parameters);
        assert!(evaluated.get("exceptionDetails").is_none(), "{evaluated}");
        evaluated["result"]["value"].take()
    }

    /// The whole page: a PNG file of a screen, a PDF file on A4 paper.
    pub(super) fn picture(&mut self, medium: Medium) -> Vec<u8> {
        if medium == Medium::Print {
            let paper = json!({ "paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": true });
            return data(&self.call("Page.printToPDF", paper));
        }
        let metrics = self.call("Page.getLayoutMetrics", json!({}));
        let (width, height) = (&metrics["cssContentSize"]["width"], &metrics["cssContentSize"]["height"]);
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": 1 });
        let taken = json!({ "captureBeyondViewport": true, "optimizeForSpeed": true, "clip": clip });
        data(&self.call("Page.captureScreenshot", taken))
    }
}

/// What a file holds that comes in base 64.
fn data(answer: &Value) -> Vec<u8> {
    let text = answer["data"].as_str().expect("a file");
    let digit = |character: u8| match character {
        b'A'..=b'Z' => character - b'A',
        b'a'..=b'z' => character - b'a' + 26,
        b'0'..=b'9' => character - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.trim_end_matches('=').bytes().map(digit).collect();
    let bytes = digits.chunks(4).flat_map(|four| {
        let bits = (0..4).fold(0, |bits, at| bits << 6 | u32::from(*four.get(at).unwrap_or(&0)));
        bits.to_be_bytes().into_iter().skip(1).take(four.len() - 1)
    });
    bytes.collect()
}
