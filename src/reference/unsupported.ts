/** The error of a reference model for unsupported requests. */

/** The request is outside the model's declarations (layout, camera, instruction, action space or horizon). The message is for the caller. */
export class UnsupportedObservation extends Error {
  override readonly name = "UnsupportedObservation";
}
