//! The program from outside: its commands, and servers that are started, asked and stopped.

mod apps;
mod audit;
mod cli;
mod devices;
mod log;
mod program;
mod reload;
mod stop;
mod store;
mod texts;
mod translations;
