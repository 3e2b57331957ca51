Feature: The report itself
  Not a promise: scenarios that must come out as they say, before the others are believed.

  Scenario: passed
    Then all is well

  Scenario: failed
    Then something is wrong
    And all is well

  Scenario: failed, as nobody has written its step
    Given all is well
    Then this is a sentence that nobody has written

  @unwritten
  Scenario: pending
    Given this is a sentence that nobody has written
    Then all is well

  @pending
  Scenario: pending, as it is not kept
    Then something is wrong

  @pending
  Scenario: failed, as it is not pending any more
    Then all is well

  @pending
  Scenario: failed, as its step is not written and nobody said so
    Given this is a sentence that nobody has written

  @unwritten
  Scenario: failed, as every step is written
    Then something is wrong
