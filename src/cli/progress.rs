//! Progress on standard error, for stages that take longer than a second.
//!
//! On a terminal one line with a spinner, elsewhere a plain line for each stage that lasts, so that logs stay readable.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use tilewright::internal::runtime::text::name;

/// Shows which stage is at work.
pub struct Progress {
    watcher: Option<(Sender<String>, JoinHandle<()>)>,
}

const PATIENCE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);

impl Progress {
    /// `quiet`: show nothing.
    pub fn new(quiet: bool) -> Progress {
        if quiet {
            return Progress { watcher: None };
        }
        let (sender, stages) = channel::<String>();
        let watch = move || {
            let terminal = std::io::stderr().is_terminal();
            let bar = ProgressBar::new_spinner();
            bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a valid template"));
            let (mut stage, mut since, mut shown) = (String::new(), Instant::now(), false);
            loop {
                match stages.recv_timeout(TICK) {
                    Ok(next) => {
                        (stage, since, shown) = (next, Instant::now(), false);
                        // An empty stage means that output follows.
                        if stage.is_empty() {
                            bar.finish_and_clear();
                        }
                    }
                    Err(RecvTimeoutError::Disconnected) => return bar.finish_and_clear(),
                    Err(RecvTimeoutError::Timeout) if stage.is_empty() || since.elapsed() < PATIENCE => {}
                    Err(RecvTimeoutError::Timeout) if terminal => {
                        bar.set_message(format!("{stage} ({} s)", since.elapsed().as_secs()));
                        bar.tick();
                    }
                    Err(RecvTimeoutError::Timeout) if !shown => {
                        shown = true;
                        let _ = writeln!(std::io::stderr(), "tilewright: {stage}");
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                }
            }
        };
        // Without a thread no progress is shown.
        Progress { watcher: Builder::new().spawn(watch).ok().map(|thread| (sender, thread)) }
    }

    /// Shows a warning, also where no progress is shown.
    pub fn warn(&self, text: &str) {
        let _ = writeln!(std::io::stderr(), "tilewright: warning: {text}");
    }

    /// From now on this is being done.
    pub fn stage(&self, text: impl Into<String>) {
        if let Some((sender, _)) = &self.watcher {
            // The watcher lives as long as this value does.
            let _ = sender.send(name(&text.into()).into_owned());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.watcher.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}
