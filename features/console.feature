Feature: The console
  Operators see in a browser what happens and why, and act. Viewers see the same, and change nothing.

  Background:
    Given a console, with Olga as an operator and Vera as a viewer

  Scenario: Without a key nobody gets in, and after logging out neither
    When Eve tries to log in to the console with the key "a-key-that-nobody-has"
    Then Eve reads the note "This is no API key of this server."
    When Olga logs in to the console
    Then Olga is on the page "Now", as an operator
    When Olga logs out of the console
    Then the console asks Olga for a key, whichever page she wants

  Scenario: A new event appears on the first page by itself
    Given Ada's phone is subscribed to "goal" of "team:42"
    And Olga looks at the page "Now"
    When the backend tells of a "goal" about "team:42"
    Then Olga sees the event finish, for 1 device, without loading the page again

  Scenario: What became of an event
    Given Ada's phone is subscribed to "goal" of "team:42"
    And Bob's phone is subscribed to "goal" of "team:42"
    And Bob's phone does not let its app show notifications
    When the backend tells of a "goal" about "team:42"
    And Olga opens the event from the page "Events"
    Then Olga reads that it was for 2 devices
    And Olga reads that 1 of them is "accepted"
    And Olga reads that 1 of them is "suppressed", because of "no permission"

  Scenario: Why a phone got nothing
    Given Ada's phone is subscribed to "goal" of "team:42"
    And Ada's phone has muted "team:42"
    When the backend tells of a "goal" about "team:42"
    And Olga asks on the page "Why" about Ada's phone and the event
    Then Olga reads the verdict "Not selected"
    And Olga reads the reason "The device mutes team:42 now, until it is taken back."

  Scenario: A provider that cannot be reached is shown until it is back
    Given Ada's phone is subscribed to "goal" of "team:42"
    And Olga looks at the page "Providers"
    And the provider cannot be reached for now
    When the backend tells of a "goal" about "team:42"
    Then the page shows Olga by itself that Apple is "Breaker open"
    And the page tells Olga to look at the network
    When the provider answers again
    Then the page shows Olga by itself that Apple is "Connected"

  Scenario: Counting whom an event would be for sends nothing
    Given Ada's phone in "SE" is subscribed to "goal" of "team:42"
    And Bob's phone in "PL" is subscribed to "goal" of "team:42"
    When Olga counts "goal on team:42 and country = SE" on the page "Audience"
    Then Olga reads that this means 1 device, and that "goal on team:42" alone means 2
    And Olga comes from there to Ada's phone
    And nobody has been pushed so far

  Scenario: A channel is watched live, and what is said in it is shown only to who asks
    Given Ada's app is connected and follows "match:1"
    And Olga watches the channel "match:1" for a minute
    When the backend tells of a "goal" about "match:1" by "Sweden"
    Then Olga sees 1 publication come by itself, and not "Sweden"
    When Olga asks to see what is said in "match:1"
    Then Olga reads "Sweden" in the publication

  Scenario: New translations are put in force, and taken back
    Given Ada's phone in the language "pl" is subscribed to "goal" of "team:42"
    And Bob's phone in the language "pl" is subscribed to "goal" of "team:43"
    When the translators change the Polish "Gol: %{team}!" to "Bramka: %{team}!"
    And Olga reads the texts again on the page "Translations"
    And the backend tells of a "goal" about "team:42"
    Then Ada's phone shows "Bramka: Sweden!"
    When Olga goes back to the texts before
    And the backend tells of a "goal" about "team:43"
    Then Bob's phone shows "Gol: Sweden!"

  Scenario: A wrong translation is not put in force, and is named
    Given Ada's phone in the language "pl" is subscribed to "goal" of "team:42"
    When the translators change the Polish "Gol: %{team}!" to "Bramka: %{tem}!"
    And Olga reads the texts again on the page "Translations"
    Then Olga reads the note "%{tem}"
    When the backend tells of a "goal" about "team:42"
    Then Ada's phone shows "Gol: Sweden!"

  Scenario: What came of a feed
    Given a feed that takes documents
    When the provider posts the goals "1 nobody 2"
    Then Olga reads on the page "Feeds" that 2 entries were sent and 1 was wrong
    And Olga reads there that the wrong entry lacks its "team"

  Scenario: The state of the server, for people and for programs
    Given Ada's phone is subscribed to "goal" of "team:42"
    And Bob's phone is known
    When Olga looks at the page "System"
    Then Olga reads that there are 2 devices and 1 subscription
    And Olga gets the same as JSON

  Scenario: What is done in the console stands in the audit log, with the name of who did it
    Given Ada's phone is subscribed to "goal" of "team:42"
    When Olga pauses "topic:goal" in the console
    And the backend tells of a "goal" about "team:42"
    And the job of the event waits, paused by "topic:goal"
    And Olga resumes "topic:goal" in the console
    Then Ada's phone is pushed once
    And Olga reads on the page "System" that "olga" did "brake.set" and then "brake.release" to "topic:goal"

  Scenario: An event that should not go out is cancelled
    Given Ada's phone is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42" for 600 seconds from now
    And Olga cancels the event in the console
    Then Olga reads the note "The event is cancelled."
    And Ada's phone is not pushed

  Scenario: Who lets go what waits for many devices types their number first
    Given 10001 phones are subscribed to "goal" of "team:42"
    And the operator has paused "everything"
    When the backend tells of a "goal" about "team:42"
    And the job of the event waits, paused by "everything"
    And Olga resumes "everything" in the console
    Then Olga is asked for the number of devices, "10 001"
    When Olga types the number "10000"
    Then Olga reads the note "That is not 10 001."
    And nobody has been pushed so far
    When Olga types the number "10001"
    Then the event counts 10001 devices as accepted

  Scenario: A test goes to a phone only after a dry run
    Given Ada's phone is known
    When Olga rehearses a test called "Is anybody there?" for Ada's phone
    Then Olga reads that the dry run was accepted
    And Ada's phone is not pushed
    When Olga pushes the test called "Is anybody there?" to Ada's phone
    Then Ada's phone shows "Is anybody there?"

  Scenario: A viewer sees every page and changes nothing
    Given Ada's phone is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42" for 600 seconds from now
    Then Vera finds no button that changes anything, on any page, on that of the event or of Ada's phone
    When Vera sends what the button "Pause" sends, without having it
    Then the console refuses it, as a viewer changes nothing
    And no pause is in force

  Scenario: A browser without scripts shows every page, and acts
    Given Ada's phone is subscribed to "goal" of "team:42"
    And Olga's browser runs no scripts
    When Olga pauses "topic:goal" in the console
    Then Olga reads the note "Paused."
    And every page of the menu opens for Olga
    When the backend tells of a "goal" about "team:42"
    And the job of the event waits, paused by "topic:goal"
    And Olga resumes "topic:goal" in the console
    Then Ada's phone is pushed once
