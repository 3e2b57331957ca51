Feature: The report itself
  Not a promise: scenarios that must come out as they say, before the others are believed.

  Scenario: passed
    Then all is well

  Scenario: failed
    Then something is wrong
    And all is well

  Scenario: failed, with a picture
    Given a screen
    Then something is wrong

  Scenario: failed, as nobody has written its step
    Given all is well
    Then this is a sentence that nobody has written

  Scenario: failed, as it promises nothing
    Given all is well

  Scenario: failed, as its first step is misspelt
    Gven something is wrong
    Then all is well

  @unwritten
  Scenario: pending
    A reason.

    Given this is a sentence that nobody has written
    Then all is well

  @pending
  Scenario: pending, as it is not kept
    A reason.

    Then something is wrong

  @pending
  Scenario: failed, as it does not say why it is pending
    Then something is wrong

  @pending
  Scenario: failed, as it is not pending any more
    A reason.

    Then all is well

  @pending
  Scenario: failed, as its step is not written and nobody said so
    A reason.

    Given this is a sentence that nobody has written
    Then all is well

  @unwritten
  Scenario: failed, as every step is written
    A reason.

    Then something is wrong

  @one
  Scenario: passed, on one server
    A reason.

    Then all is well

  @one
  Scenario: failed, as it does not say why it stays on one server
    Then all is well
