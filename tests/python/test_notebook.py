"""A notebook that shows a report and reads a table, executed as Jupyter does."""

import os
import sys
import tempfile
import unittest

from places import IS_INSTALLED, ROOT, SOURCE, needs, needs_program

HEALTHY = os.path.join(ROOT, "fixtures", "healthy")
PATH = "" if IS_INSTALLED else f"import sys; sys.path.insert(0, {SOURCE!r})"


@needs("nbclient", "nbformat", "ipykernel", "pandas")
@needs_program()
class Notebook(unittest.TestCase):
    def executed(self, *cells):
        """The outputs of each cell. The kernel is one of this Python, whatever kernels are installed."""
        import nbformat
        from jupyter_client import AsyncKernelManager
        from jupyter_client.kernelspec import KernelSpec
        from nbclient import NotebookClient

        class OfThisPython(AsyncKernelManager):
            @property
            def kernel_spec(self):
                words = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
                return KernelSpec(argv=words, display_name="this Python", language="python")

        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in (PATH, *cells)])
        with tempfile.TemporaryDirectory() as directory:
            client = NotebookClient(notebook, timeout=120, allow_errors=True, resources={"metadata": {"path": directory}},
                                    kernel_manager_class=OfThisPython)
            client.execute()
        return [cell.outputs for cell in notebook.cells[1:]]

    def test_a_notebook(self):
        shown, read, failed = self.executed(
            f"import attnscope\nattnscope.show({HEALTHY!r}, 'the king took a quiet story', height=400)",
            f"import subprocess\nwords = [attnscope.find_program(), 'report', {HEALTHY!r}, '--tokens=1,2,3', '--format=csv', "
            "'--output=report.csv']\nsubprocess.run(words, check=True)\nattnscope.read('report.csv')",
            "attnscope.show('./nowhere', 'text')",
        )
        [output] = shown
        self.assertEqual(output.output_type, "execute_result")
        frame = output.data["text/html"]
        self.assertTrue(frame.startswith('<iframe sandbox="allow-popups" srcdoc="&lt;!'), frame[:100])
        self.assertIn("height: 400px", frame)
        self.assertIn("attnscope report of", output.data["text/plain"])
        table = read[-1].data["text/html"]
        self.assertIn("entropy_relative", table)
        [error] = failed
        self.assertEqual((error.output_type, error.ename), ("error", "CommandError"))
        self.assertIn("nowhere", error.evalue)


if __name__ == "__main__":
    unittest.main()
