//! The `tsumugi` command.

fn main() -> std::process::ExitCode {
    tsumugi_cli::main()
}
