# Files are checked and read, and no server is asked.
@one
Feature: Before it is too late
  Whoever runs the server sees mistakes before anybody else does.

  Scenario: A text can be read before it is sent
    When the operator asks how a "goal" for "Sweden" is told in "pl"
    Then the operator reads "Gol: Sweden!" in "pl"

  Scenario: A misspelt setting is found, with its line
    Given the server is running
    When the operator misspells "history_size" as "history_sise" and checks the configuration
    Then the operator is told the line of "history_sise", and that "history_size" was meant
