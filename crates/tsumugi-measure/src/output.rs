//! Standard output, which a reader may have closed (`| head`) and a disk may be too full for: an error like any other.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::Args;

/// What a command returns: its exit code, or an error that is to be printed.
pub type CommandResult = Result<ExitCode, Box<dyn Error>>;

/// What a shell reports for a command that Ctrl-C ended.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// How a measurement shows what it has found and how far it is.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Shown {
    /// Print one JSON object on stdout, and nothing else there.
    #[arg(long)]
    pub(crate) json: bool,
    /// Say nothing on stderr of how long it takes and how far it is.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// What stands in the way of standard output.
#[derive(Debug)]
struct OutputError(io::Error);

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write to standard output: {}", self.0)
    }
}

impl Error for OutputError {}

/// Standard output, whose errors say so.
pub struct Output(io::StdoutLock<'static>);

/// Standard output, locked.
pub fn output() -> Output {
    Output(io::stdout().lock())
}

fn told<T>(result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| io::Error::new(error.kind(), OutputError(error)))
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            // The caller tries again.
            Err(error) if error.kind() == ErrorKind::Interrupted => Err(error),
            written => told(written),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        told(self.0.flush())
    }
}

/// Prints text that ends where it ends.
pub fn text(text: impl fmt::Display) -> io::Result<()> {
    let mut output = output();
    output.write_all(text.to_string().as_bytes())?;
    output.flush()
}

/// Prints a line.
pub fn line(line: impl fmt::Display) -> io::Result<()> {
    text(format_args!("{line}\n"))
}

/// Whether the reader of standard output has gone: it has had enough, and nobody need be told.
pub fn is_closed(error: &(dyn Error + 'static)) -> bool {
    let output = |error: &io::Error| {
        error.kind() == ErrorKind::BrokenPipe
            && error.get_ref().is_some_and(|inner| inner.is::<OutputError>())
    };
    let mut causes = std::iter::successors(Some(error), |cause: &&(dyn Error + 'static)| (*cause).source());
    causes.any(|cause| cause.downcast_ref::<io::Error>().is_some_and(output))
}
